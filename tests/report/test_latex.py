r"""Tables that LaTeX can read, whatever is in their cells."""
# ruff: noqa: RUF001 - letters and signs that look like others are to be told apart

import re

import pytest

from bcnn.report.document import Details, Document, Section, Table
from bcnn.report.latex import _HIGH, _LOW, _MATH, _TEXT, escape, render_latex

TABLE = Table(
    "Effect of ε & normalization",
    ("network", "ours %", "Δ"),
    (("VGG_D", "83.0 ± 0.4", "+1.2"), ("[none]", "not run", ""), ("*", "81.0", "-0.3")),
    note="100% of 3 seeds.",
    strong=frozenset({(0, 1), (1, 2)}),
    faint=frozenset({(1, 1)}),
)


def rendered(*sections):
    return render_latex(Document("Report\n\\input{x}", (), sections))


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("50% a_b R&D #1 $5 {x}", r"50\% a\_b R\&D \#1 \$5 \{x\}"),
        ("~^\\", r"\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        ("83.0 ± 0.4", r"83.0 $\pm$ 0.4"),
        ("−0.4 × 2 → ε ≥ 1 · √x", r"$-$0.4 $\times$ 2 $\to$ $\varepsilon$ $\ge$ 1 $\cdot$ $\surd$x"),
        ("10⁻⁵", r"10$^{-5}$"),
        ("ℓ₂, σ², ‖Z₁₂‖", r"$\ell_{2}$, $\sigma^{2}$, $\|$Z$_{12}\|$"),
        ("a<b>c|d", r"a$<$b$>$c$|$d"),
        ("-0.3 (-.5) 1e-05 a-1", r"$-$0.3 ($-$.5) 1e-05 a-1"),
        ("--lr 3–5 — “x”\u00a0y", r"-{}-lr 3--5 --- ``x''~y"),
        ("two\n  lines", "two lines"),
        ("naïve", "naïve"),
    ],
)
def test_text_is_escaped(plain, expected):
    assert escape(plain) == expected


def test_what_pdflatex_may_not_know_is_gone():
    known = "".join([*_TEXT, *_MATH, *_HIGH, *_LOW])
    assert set("%_&#${}~^\\±−×→ε≥·⁻⁵√ℓ") <= set(known)
    assert escape(known).isascii()


def test_no_superscript_follows_another():
    for a in _HIGH:
        for b in _MATH:
            assert not re.search(r"\^\{[^}]*\}\^", escape(a + b))
            assert not re.search(r"\^\{[^}]*\}\^", escape(b + a).replace(r"^{\circ}", ""))


def test_a_table_in_full():
    text = rendered(Section("One", "table1_normalization", blocks=(TABLE, Details("no", "table"))))
    assert text == "\n".join(
        [
            r"% Report \input{x}",
            r"% Needs \usepackage{adjustbox, amssymb, booktabs, xcolor}.",
            "",
            r"\begin{table}[tp]",
            r"  \centering",
            r"  \caption{Effect of $\varepsilon$ \& normalization}",
            r"  \label{tab:table1_normalization}",
            r"  \smallskip",
            r"  \begin{adjustbox}{max width=\linewidth, max totalheight=0.8\textheight}",
            r"  \begin{tabular}{lrr}",
            r"    \toprule",
            r"    network & ours \% & $\Delta$ \\",
            r"    \midrule",
            r"    VGG\_D & \textbf{83.0 $\pm$ 0.4} & +1.2 \\",
            r"    {}[none] & \textcolor{gray}{not run} &  \\",
            r"    {}* & 81.0 & $-$0.3 \\",
            r"    \bottomrule",
            r"  \end{tabular}",
            r"  \end{adjustbox}",
            r"  \par\smallskip{\footnotesize 100\% of 3 seeds.\par}",
            r"\end{table}",
            "",
        ]
    )


def test_labels_differ():
    text = rendered(
        Section("One", "one", blocks=(TABLE, TABLE)), Section("Two", "two", blocks=(TABLE,)), Section("Three", "three")
    )
    assert re.findall(r"\\label\{(.*?)\}", text) == ["tab:one:1", "tab:one:2", "tab:two"]


def test_every_row_has_a_cell_a_column():
    row = ("a", "&", "b", "\\", "&", "{c}", "%", "d")
    lines = rendered(Section("S", "s", blocks=(Table("T", row, (row,) * 3, num_labels=2),))).splitlines()
    rows = [line for line in lines if line.endswith(r" \\")]
    assert [len(re.findall(r"(?<!\\)&", line)) for line in rows] == [len(row) - 1] * 4
    assert r"\begin{tabular}{llrrrrrr}" in "\n".join(lines)
