r"""The tables of a document as LaTeX, to be \input into a paper.

Characters that pdflatex does not know become mathematics; others than those below, and letters with accents, which it
does know, are left as they are.
"""
# ruff: noqa: RUF001 - letters and signs that look like others are what this file is about

from __future__ import annotations

import re
from collections.abc import Iterator

from .document import Document, Section, Table

_TEXT = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "$": r"\$",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "`": r"\`{}", '"': "''",
    "\u2018": "`", "\u2019": "'", "\u201c": "``", "\u201d": "''", "\u2013": "--", "\u2014": "---", "\u2011": "-",
    "\u2026": r"\ldots{}", "\u00a0": "~", "\u2009": r"\,", "\u202f": r"\,", "\u200b": "",
}  # fmt: skip
# Without mathematics, the old text fonts print < as an inverted exclamation mark.
_MATH = {
    "<": "<", ">": ">", "|": "|", "\u2212": "-", "±": r"\pm", "×": r"\times", "·": r"\cdot", "÷": r"\div",
    "→": r"\to", "←": r"\gets", "↔": r"\leftrightarrow", "⇒": r"\Rightarrow", "↑": r"\uparrow", "↓": r"\downarrow",
    "≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx", "≡": r"\equiv", "≪": r"\ll", "≫": r"\gg", "∝": r"\propto",
    "√": r"\surd", "∞": r"\infty", "∈": r"\in", "∂": r"\partial", "∇": r"\nabla", "∑": r"\sum", "∏": r"\prod",
    "‖": r"\|", "⊗": r"\otimes", "⊙": r"\odot", "ℓ": r"\ell", "°": r"{}^{\circ}", "½": r"\frac{1}{2}",
    "✓": r"\checkmark", "✗": r"\times",
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\varepsilon", "ϵ": r"\epsilon",
    "ζ": r"\zeta", "η": r"\eta", "θ": r"\theta", "κ": r"\kappa", "λ": r"\lambda", "μ": r"\mu", "µ": r"\mu",
    "ν": r"\nu", "ξ": r"\xi", "π": r"\pi", "ρ": r"\rho", "σ": r"\sigma", "τ": r"\tau", "φ": r"\varphi",
    "χ": r"\chi", "ψ": r"\psi", "ω": r"\omega", "Γ": r"\Gamma", "Δ": r"\Delta", "Θ": r"\Theta", "Λ": r"\Lambda",
    "Π": r"\Pi", "Σ": r"\Sigma", "Φ": r"\Phi", "Ψ": r"\Psi", "Ω": r"\Omega",
}  # fmt: skip
_HIGH = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿᵀ", "0123456789+-nT", strict=True))
_LOW = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ᵢⱼₙ", "0123456789+-ijn", strict=True))

_PIECE = re.compile(f"[{''.join(_HIGH)}]+|[{''.join(_LOW)}]+|.")
_RUN = re.compile(f"[{re.escape(''.join([*_MATH, *_HIGH, *_LOW]))}]+|-+|.")
_MINUS = re.compile(r"(?<![^\s(])-(?=\.?\d)")


def render_latex(document: Document) -> str:
    """All tables, one `table` environment each; too large ones shrink to the page."""
    title = re.sub(r"\s+", " ", document.title)
    top = f"% {title}\n% Needs \\usepackage{{adjustbox, amssymb, booktabs, xcolor}}.\n"
    return "\n".join(
        [top, *(_table(table, label) for section in document.sections for table, label in _named(section))]
    )


def escape(text: str) -> str:
    r"""Plain text as LaTeX that prints it.

    Example:
        >>> print(escape("83.0 ± 0.4 % at 10⁻⁵ --lr_scale"))
        83.0 $\pm$ 0.4 \% at 10$^{-5}$ -{}-lr\_scale
    """
    text = _MINUS.sub("\u2212", re.sub(r"\s*\n\s*", " ", text.strip()))
    return _RUN.sub(lambda found: _run(found[0]), text)


def _named(section: Section) -> Iterator[tuple[Table, str]]:
    tables = [block for block in section.blocks if isinstance(block, Table)]
    for i, table in enumerate(tables, start=1):
        yield table, f"tab:{section.anchor}:{i}" if len(tables) > 1 else f"tab:{section.anchor}"


def _table(table: Table, label: str) -> str:
    columns = "".join("l" if j < table.num_labels else "r" for j in range(len(table.header)))
    rows = [_row([_cell(table, i, j) for j in range(len(columns))]) for i in range(len(table.rows))]
    note = [rf"  \par\smallskip{{\footnotesize {escape(table.note)}\par}}"] if table.note else []
    lines = [
        r"\begin{table}[tp]",
        r"  \centering",
        rf"  \caption{{{escape(table.title)}}}",
        rf"  \label{{{label}}}",
        r"  \smallskip",  # most classes keep no distance to a table under its caption
        r"  \begin{adjustbox}{max width=\linewidth, max totalheight=0.8\textheight}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        _row([escape(name) for name in table.header]),
        r"    \midrule",
        *rows,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"  \end{adjustbox}",
        *note,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _cell(table: Table, i: int, j: int) -> str:
    text = escape(table.rows[i][j])
    if text and (i, j) in table.strong:
        text = rf"\textbf{{{text}}}"
    if text and (i, j) in table.faint:
        text = rf"\textcolor{{gray}}{{{text}}}"
    return text


def _row(cells: list[str]) -> str:
    line = " & ".join(cells)
    guard = "{}" if line[:1] in ("[", "*") else ""  # the line before would take it for an option of its end
    return f"    {guard}{line} \\\\"


def _run(text: str) -> str:
    """Characters of one kind: mathematics in one formula; hyphens kept from joining into a dash."""
    if text[0] in _TEXT:
        return _TEXT[text]
    if text[0] == "-":
        return "{}".join(text)
    if text[0] in _MATH or text[0] in _HIGH or text[0] in _LOW:
        return f"${''.join(map(_formula, _PIECE.findall(text)))}$"
    return text


def _formula(piece: str) -> str:
    if piece[0] in _HIGH:
        return f"^{{{''.join(_HIGH[c] for c in piece)}}}"
    if piece[0] in _LOW:
        return f"_{{{''.join(_LOW[c] for c in piece)}}}"
    return _MATH[piece]
