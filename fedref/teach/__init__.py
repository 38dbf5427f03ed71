"""Lessons made from the code that runs: pages of equations beside their lines, and exercises.

`source` reads tags, formulae and symbols; `formula` computes and typesets them; `example` runs a function
and notes its numbers; `pages` puts together what is said of a topic, and `site` writes it as HTML, with
`pictures`, a `figure` with sliders, and the `guide_pages`: the specification, proofs, mistakes, guides.
An exercise (`catalogue`) becomes a file (`template`), whose answers (`run_solution`) tell the kind of a
mistake (`classify_mistake`).
"""
