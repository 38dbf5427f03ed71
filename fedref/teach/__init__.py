"""Lessons made from the code that runs: pages of papers, pictures, worked examples, and exercises.

A page is one text in Markdown (`pages`): the terminal prints it (`topics`), `site` shows it as HTML. It is
made from what the source says (`source`: tags, equations, symbols), the smallest case traced through the
specification (`example`), known mistakes, and prose (text/, tour.ipynb). `formula`
typesets; `pictures` draws. `exercises` takes expressions out of the specification and judges what
students write in their place.
"""
