"""Lessons made from the code that runs: pages of papers, pictures, worked examples, and exercises.

`source` reads tags, equations and symbols, and `formula` computes and typesets them. `example` draws and
traces the smallest case of an algorithm, `plane` draws its rounds, `mistakes` shows wrong lines. `pages`
puts together what the terminal says of a topic, and `site` (with `markup`, `style` and `pictures`) writes
it as HTML; its prose is in text/, its first page is tour.ipynb. `exercises` takes expressions out of the
specification and judges what students write in their place.
"""
