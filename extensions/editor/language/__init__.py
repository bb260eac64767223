"""What an editor asks about the text of a spec, a run or a study; no torch for specs.

`problems.findings`, `completion.complete.complete`, `hover.hover`, `moves.definition`,
`moves.references`, `moves.rename`, `symbols.symbols`, `layout.format_edits` and `problems.fix_all`
take a text and the path of its file; places are offsets in characters.  `document.document` has
what the checker knows of a text, also of a broken one, and keeps the answers about the last texts.
"""
