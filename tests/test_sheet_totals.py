"""A total is over every row, or it is an error; whatever a figure leaves out is named beside it."""

from __future__ import annotations

import io
import json
import re
import zipfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue import AgentSpec, Retinue, attachments
from retinue.attachment_csv import parse_csv
from retinue.attachment_parsers import ParserLimits, Sheet, Tables, parse_workbook
from retinue.attachments import attach_bytes
from retinue.errors import ConfigError, ToolError
from retinue.events import ToolReturned
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.tools.base import ToolContext
from retinue.tools.sheet_numbers import exactly, read_number
from retinue.tools.sheet_table import as_table
from retinue.tools.sheet_totals import Ambiguous, Numbers, Tally
from retinue.tools.sheets import Workbook, sheet_tools
from test_attachments import XLS, _row, _xlsx


async def use(book: Workbook, tool: str, **arguments: Any) -> str:
    each = next(each for each in sheet_tools([book]) if each.name == tool)
    return cast("str", await each.call(each.parse(json.dumps(arguments)), cast("ToolContext", None)))


async def of(name: str, data: bytes | str) -> Workbook:
    found = await attach_bytes(name, data.encode() if isinstance(data, str) else data)
    assert found.workbook is not None
    return found.workbook


def parsed(data: bytes) -> Workbook:
    """A workbook that is parsed right here, which is quicker than in a process of its own."""
    found = parse_workbook(data, ParserLimits())
    assert isinstance(found, Tables)
    return Workbook(name="b", sheets=found.sheets)


def sheet(*cells: Any, **fields: Any) -> Workbook:
    """A workbook of one column of this name `n`."""
    rows = [["n"], *([cell] for cell in cells)]
    return Workbook(name="b", sheets=(Sheet(**{"name": "S", "rows": rows, "total": len(rows), **fields}),))


async def total(book: Workbook, function: str = "sum", **more: Any) -> str:
    return await use(book, "sheet_aggregate", column="n", function=function, **more)


# ---- every row


async def test_a_long_file_is_added_up_to_its_last_row() -> None:
    """300,000 rows of three columns, where the last ones weigh most."""
    count = 300_000
    lines = [f"{i},x,{i if i < 200_000 else i * 10}" for i in range(1, count)]
    book = await of("long.csv", "id,name,amount\n" + "\n".join(lines))
    expected = sum(i if i < 200_000 else i * 10 for i in range(1, count))
    text = await use(book, "sheet_aggregate", column="amount", function="sum")
    assert text == f"sum of amount: {expected}"


@pytest.mark.parametrize("function", ["count", "sum", "mean", "median", "min", "max", "distinct"])
async def test_there_is_no_figure_over_some_of_the_rows(function: str) -> None:
    book = sheet(1, 2, 3, total=300_001)
    with pytest.raises(ToolError, match=r"only the first 4 of 300,001 rows of sheet 'S' could be read"):
        await total(book, function)
    with pytest.raises(ToolError, match="could be read"):
        await total(book, function, where=[{"column": "n", "value": 1}])


async def test_rows_that_could_not_be_read_are_named_where_rows_are_shown() -> None:
    book = sheet(1, 2, 3, total=301)
    text = await use(book, "sheet_filter", where=[])
    assert text.endswith("[297 of 301 rows could not be read, and were not looked at]")
    with pytest.raises(ToolError, match="could be read"):
        await use(book, "sheet_filter", where=[], sort_by="n")
    assert (await use(book, "sheet_read", cells="A:A")).endswith("[297 rows after that could not be read]")
    with pytest.raises(ToolError, match="row 300 could not be read: only the first 4 of 301 rows"):
        await use(book, "sheet_read", cells="A300")


def test_a_row_that_does_not_fit_ends_the_reading_and_none_after_it_slips_in() -> None:
    parsed = parse_csv(b"a,b\n1,2\n1,2,3,4,5\n6\n7\n", ParserLimits(cells=6))
    assert isinstance(parsed, Tables)
    assert (parsed.sheets[0].rows, parsed.sheets[0].total) == ([["a", "b"], [1, 2]], 5)


# ---- formulas, errors, hidden rows


async def test_formulas_that_nobody_computed_are_an_error_and_not_nothing(tmp_path: Path) -> None:
    rows = _row(1, "n", "price") + _row(2, "=B2*2->", 5) + _row(3, "=B3*2->", 6) + _row(4, 7, 8)
    book = await of("made.xlsx", _xlsx({"S": rows}))
    for function in ("sum", "mean", "max", "distinct"):
        with pytest.raises(ToolError, match=r"2 of 3 cells of n are formulas without a value .*row 2"):
            await total(book, function)
    with pytest.raises(ToolError, match="formulas without a value"):
        await use(book, "sheet_filter", where=[{"column": "n", "op": ">", "value": 1}])
    with pytest.raises(ToolError, match="formulas without a value"):
        await use(book, "sheet_aggregate", column="price", function="sum", group_by=["n"])
    assert await use(book, "sheet_aggregate", column="price", function="sum") == "sum of price: 19"
    shown = await use(book, "sheet_read", cells="A2:A4")
    assert "| 2 | =B2*2 |" in shown
    assert shown.endswith("[2 of these cells are formulas without a value; the formula is shown]")
    described = (await attach_bytes("made.xlsx", _xlsx({"S": rows}))).text
    assert "2 formulas without a value" in described


async def test_a_formula_with_a_value_is_that_value_also_where_it_is_an_empty_text() -> None:
    empty = '<row r="4"><c r="A4" t="str"><f>IF(1,"","x")</f><v></v></c></row>'
    rows = _row(1, "n") + _row(2, "=1+1->2") + _row(3, "=2+2->4") + empty
    book = await of("kept.xlsx", _xlsx({"S": rows}))
    assert (await total(book)).startswith("sum of n: 6\n")


async def test_formulas_are_found_in_every_way_to_write_them() -> None:
    shared = '<row r="2"><c r="A2"><f t="shared" ref="A2:A3" si="0">B2</f></c></row>'
    shared += '<row><c><f t="shared" si="0"/></c></row>'  # without addresses: the next row, the next cell
    book = await of("shared.xlsx", _xlsx({"S": _row(1, "n") + shared}))
    with pytest.raises(ToolError, match="2 of 2 cells"):
        await total(book)


def _ods(rows: str) -> bytes:
    packed = io.BytesIO()
    names = " ".join(
        f'xmlns:{each}="urn:oasis:names:tc:opendocument:xmlns:{each}:1.0"'
        for each in ("office", "table", "text")
    )
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr(
            "content.xml",
            f"<office:document-content {names}><office:body><office:spreadsheet>"
            f'<table:table table:name="S">{rows}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
        )
        archive.writestr(
            "META-INF/manifest.xml",
            '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>',
        )
    return packed.getvalue()


def _ods_row(cell: str, **attributes: str) -> str:
    given = "".join(f' table:{name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f"<table:table-row{given}>{cell}</table:table-row>"


async def test_the_open_format_is_looked_over_too() -> None:
    head = '<table:table-cell office:value-type="string"><text:p>n</text:p></table:table-cell>'
    five = (
        '<table:table-cell office:value-type="float" office:value="5"><text:p>5</text:p></table:table-cell>'
    )
    bare = '<table:table-cell table:formula="of:=[.B2]*2"/>'
    whole = _ods(_ods_row(head) + _ods_row(five) + _ods_row(five, visibility="filter"))
    assert await total(await of("a.ods", whole)) == (
        "sum of n: 10\n[1 of these rows are hidden in the file, and counted]"
    )
    broken = _ods(_ods_row(head) + _ods_row(bare, number_rows_repeated="3") + _ods_row(five))
    with pytest.raises(ToolError, match="3 of 4 cells of n are formulas without a value"):
        await total(await of("b.ods", broken))


async def test_errors_of_the_spreadsheet_are_left_out_and_named() -> None:
    broken = '<row r="3"><c r="A3" t="e"><v>#DIV/0!</v></c></row>'
    book = await of("err.xlsx", _xlsx({"S": _row(1, "n") + _row(2, 5) + broken + _row(4, 6)}))
    assert await total(book) == (
        "sum of n: 11\n[1 cell is an error of the spreadsheet and was left out: '#DIV/0!' in row 3]"
    )


@pytest.mark.parametrize("function", ["count", "sum", "mean", "median", "min", "max", "distinct"])
@pytest.mark.parametrize(
    "twice",
    [
        '<row r="2"><c r="A2"><v>5</v></c><c r="A2"><v>7</v></c></row>',
        _row(2, 5) + _row(2, 7),
        _row(2, 5) + _row(3, 6) + _row(2, 7),
        '<row r="2"><c><v>5</v></c></row><row r="2"><c><v>7</v></c></row>',
        '<row r="1"><c r="B1"><v>5</v></c></row><row><c><v>5</v></c><c r="A2"><v>7</v></c></row>',
    ],
)
async def test_a_cell_that_the_file_holds_twice_is_an_error_and_not_its_last_value(
    twice: str, function: str
) -> None:
    book = parsed(_xlsx({"S": _row(1, "n") + twice + _row(9, 1)}))
    with pytest.raises(ToolError, match="1 row has a cell that the file holds twice: row 2"):
        await total(book, function)
    assert "holds twice" in await total(book, function, doubtful="keep")
    assert (await total(book, "max", doubtful="skip")).split("\n")[0] in ("max of n: 1", "max of n: 6")
    assert "holds twice" in await use(book, "sheet_read", cells="A2")


@pytest.mark.parametrize(
    "value",
    [
        "1<!-- -->0",
        "<!-- -->10",
        "<![CDATA[10]]>",
        "1<![CDATA[0]]>",
        "1<?x y?>0",
        "1&#48;",
        "&#49;0",
        "10</v><v>20",
    ],
)
async def test_a_value_of_which_the_parser_reads_a_piece_is_an_error(value: str) -> None:
    cell = f'<row r="2"><c r="A2"><v>{value}</v></c></row>'
    book = parsed(_xlsx({"S": _row(1, "n") + cell + _row(3, 5)}))
    with pytest.raises(ToolError, match=r"1 row has a value that the file writes in pieces.*row 2"):
        await total(book)
    assert (await total(book, doubtful="skip")).startswith("sum of n: 5\n")


async def test_comments_between_rows_and_references_in_texts_are_nothing_to_speak_of() -> None:
    text = '<row r="3"><c r="A3"><v>5</v></c><c r="B3" t="str"><v>a&amp;b</v></c></row>'
    book = parsed(_xlsx({"S": _row(1, "n", "m") + "<!-- made by hand -->" + _row(2, 6) + text}))
    assert await total(book) == "sum of n: 11"
    assert book.sheets[0].rows[2] == [5, "a&b"]


async def test_a_cell_whose_row_says_otherwise_overwrites_none_in_silence() -> None:
    rows = '<row r="2"><c r="A2"><v>1</v></c></row><row r="3"><c r="A2"><v>20</v></c></row>'
    book = parsed(_xlsx({"S": _row(1, "n") + rows}))
    with pytest.raises(ToolError, match="a cell that the file holds twice: row 2"):
        await total(book)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            '<row r="4294967298"><c r="A4294967298"><v>5</v></c></row>',
            "row 4294967298, and 1,048,576 is the last",
        ),
        ("</sheetData><sheetData>" + _row(3, 5), "the cells of one sheet in several parts"),
    ],
)
async def test_a_workbook_that_no_program_writes_is_refused(rows: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        await of("odd.xlsx", _xlsx({"S": _row(1, "n") + _row(2, 1) + rows}))


async def test_a_part_that_is_there_twice_is_refused() -> None:
    data = io.BytesIO(_xlsx({"S": _row(1, "n") + _row(2, 1)}))
    with zipfile.ZipFile(data, "a") as archive:
        name = next(each for each in archive.namelist() if "sheet1" in each and "rels" not in each)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr(name, archive.read(name))
    with pytest.raises(ConfigError, match="two parts of the name"):
        await of("odd.xlsx", data.getvalue())


@pytest.mark.parametrize(("text", "name"), [("Anna,10\nBob,20\nCarl,30\n", "10"), ("10,20\n30,40\n", "20")])
async def test_a_row_of_data_that_was_taken_for_names_is_named(text: str, name: str) -> None:
    said = await use(await of("a.csv", text), "sheet_aggregate", column="B", function="sum")
    assert f"row 1 was taken for the names of the columns; if {name} is data, it is not counted" in said


async def test_rows_in_another_order_and_in_pieces_are_nothing_to_speak_of() -> None:
    pieces = '<row r="2"><c r="A2"><v>5</v></c></row><row r="2"><c r="B2"><v>7</v></c></row>'
    book = parsed(_xlsx({"S": _row(1, "n") + _row(9, 1) + pieces}))
    assert await total(book) == "sum of n: 6"


async def test_whole_numbers_of_a_workbook_keep_all_their_digits() -> None:
    number = '<row r="2"><c r="A2"><v>9007199254740993</v></c></row><row r="3"><c r="A3"><v>-12345678901234567</v></c></row>'
    book = parsed(_xlsx({"S": _row(1, "n") + number + _row(4, 1)}))
    assert await total(book) == f"sum of n: {9007199254740993 - 12345678901234567 + 1}"
    assert book.sheets[0].rows[1] == [9007199254740993]


async def test_formulas_that_are_all_zero_may_never_have_been_computed() -> None:
    said = "[all 2 formulas of this column have the value 0 in the file: perhaps nobody has computed them]"
    book = parsed(_xlsx({"S": _row(1, "n", "m") + _row(2, "=B2*2->0", 5) + _row(3, "=B3*2->0", 6)}))
    for function in ("sum", "mean", "max", "min", "median"):
        assert said in await total(book, function)
    assert await use(book, "sheet_aggregate", column="m", function="sum") == "sum of m: 11"
    book = parsed(_xlsx({"S": _row(1, "n", "m") + _row(2, "=B2*2->0", 0) + _row(3, "=B3*2->12", 6)}))
    assert await total(book) == "sum of n: 12"


async def test_formulas_whose_value_is_an_empty_text_are_named() -> None:
    empty = '<row r="3"><c r="A3" t="str"><f>A2*2</f><v></v></c></row>'
    book = parsed(_xlsx({"S": _row(1, "n") + _row(2, 5) + empty}))
    assert await total(book) == "sum of n: 5\n[1 formula of this column has an empty text as its value]"


async def test_the_binary_format_says_that_it_is_not_looked_over() -> None:
    book = await of("old.xls", XLS)
    text = await use(book, "sheet_aggregate", column="people", function="sum")
    assert text == (
        "sum of people: 312000\n"
        "[formulas without a value, errors and hidden rows could not be looked for in this file]"
    )


async def test_hidden_rows_are_counted_and_it_is_said() -> None:
    hidden = _row(3, 100).replace("<row ", '<row hidden="1" ')
    book = await of("hidden.xlsx", _xlsx({"S": _row(1, "n") + _row(2, 5) + hidden}))
    assert await total(book) == "sum of n: 105\n[1 of these rows are hidden in the file, and counted]"
    assert "[1 of these rows are hidden in the file]" in await use(book, "sheet_filter", where=[])
    assert await total(book, where=[{"column": "n", "op": "<", "value": 9}]) == "sum of n: 5"


async def test_a_row_that_looks_like_a_total_is_named() -> None:
    book = await of("t.csv", "what,n\na,1\nb,2\nTotal,3\n")
    assert await total(book) == "sum of n: 6\n[row 4 looks like a total of other rows, and is counted]"
    book = await of("t.csv", "what,n\na,1\nSubtotal A,1\nb,2\nSubtotal B,2\n")
    said = "[2 rows look like totals of others, and are counted; the first: row 3]"
    assert await total(book) == f"sum of n: 6\n{said}"


@pytest.mark.parametrize(
    "word",
    [
        "Gesamt",
        "Gesamtsumme",
        "Zwischensumme",
        "Insgesamt",
        "Somme",
        "Sous-total",
        "Totale",
        "Totaal",
        "Suma",
        "Razem",
        "Celkem",
        "Összesen",
        "Totalt",
        "Yhteensä",
        "Итого",
        "Всего",
        "Σύνολο",
        "Toplam",
        "Ukupno",
        "Samtals",
        "Kokku",
        "TOTAL:",
        "Total(EUR)",
        "Summe:",
    ],
)
@pytest.mark.parametrize("function", ["sum", "count", "mean", "max", "distinct"])
async def test_a_total_is_known_by_its_name_in_any_european_language(word: str, function: str) -> None:
    rows = [["what", "n"], ["a", 1], ["b", 5], [word, 8]]
    book = Workbook(name="b", sheets=(Sheet(name="S", rows=rows, total=4),))
    assert "[row 4 looks like a total of other rows, and is counted]" in await total(book, function)


@pytest.mark.parametrize(
    "word",
    ["Subtotal A", "Total North", "North total", "All", "Summe Nord", "Zwischensumme: Süd", "Итого за май"],
)
async def test_a_total_of_a_part_is_known_by_its_name(word: str) -> None:
    rows = [["what", "n"], ["a", 1], [word, 8], ["b", 5]]
    book = Workbook(name="b", sheets=(Sheet(name="S", rows=rows, total=4),))
    assert "[row 3 looks like a total of other rows, and is counted]" in await total(book)


@pytest.mark.parametrize(
    ("formula", "counted"),
    [("SUM(B2:B3)", True), ("SUBTOTAL(9, B$2:B$3)", True), ("B2+B3", True), ("SUM(A4:C4)", False), ("B3*2", False), ("SUM(C2:C3)", False)],
)  # fmt: skip
async def test_a_row_that_adds_up_others_by_its_formula_is_named(formula: str, counted: bool) -> None:
    rows = _row(1, "what", "n") + _row(2, "a", 1) + _row(3, "b", 2) + _row(4, "", f"={formula}->3")
    book = parsed(_xlsx({"S": rows + _row(5, "c", 4) + _row(6, "d", 5)}))
    said = "\n[row 4 looks like a total of other rows, and is counted]" if counted else ""
    assert await total(book) == f"sum of n: 15{said}"


def _styled(*codes: str) -> bytes:
    """A workbook of numbers, each in a format of its own."""
    cells = "".join(
        f'<row r="{i}"><c r="A{i}" s="{i - 1}"><v>{i}</v></c></row>' for i in range(2, len(codes) + 2)
    )
    data = io.BytesIO(_xlsx({"S": _row(1, "n") + cells}))
    formats = "".join(f'<numFmt numFmtId="{170 + i}" formatCode="{code}"/>' for i, code in enumerate(codes))
    styles = "".join(f'<xf numFmtId="{170 + i}"/>' for i in range(len(codes)))
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr(
            "xl/styles.xml",
            '<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
            f'<numFmts>{formats}</numFmts><cellStyleXfs><xf numFmtId="0"/></cellStyleXfs>'
            f'<cellXfs><xf numFmtId="0"/>{styles}</cellXfs></styleSheet>',
        )
    return data.getvalue()


@pytest.mark.parametrize(
    "codes",
    [
        ("[$$-409]#,##0.00", "[$€-407]#,##0.00"),
        ("#,##0 &quot;EUR&quot;", "[$CHF-807] 0"),
        ("[$$-409]0", "[$$-C09]0"),
    ],
)
async def test_currencies_that_formats_name_are_not_added_up(codes: tuple[str, ...]) -> None:
    with pytest.raises(ToolError, match=r"several currencies.*only the formats of the cells name"):
        await total(parsed(_styled(*codes)))


async def test_one_currency_in_several_formats_is_one() -> None:
    book = parsed(_styled("[$€-407]#,##0.00", "#,##0.00 &quot;EUR&quot;", "€0;[Red]-€0", "0.00", "[$-409]d"))
    assert (await total(book)).startswith("sum of n: ")


async def test_two_columns_of_one_name_are_told_also_where_the_name_is_a_letter() -> None:
    book = await of("t.csv", "a,b,b\nx,1,10\ny,2,30\n")
    text = await use(book, "sheet_aggregate", column="b", function="sum")
    assert text == "sum of b: 3\n['b' is column B; of the same name are 'b (C)']"


@pytest.mark.parametrize(
    "word",
    ["Totally", "Summer", "Sumatra", "Somerset", "Ensemble cast", "Salto", "Total Wine & More", "Allgäu"],
)
async def test_a_word_that_begins_like_a_total_is_none(word: str) -> None:
    assert await total(await of("t.csv", f"what,n\na,1\nb,5\n{word},8\n")) == "sum of n: 14"


@pytest.mark.parametrize("function", ["sum", "count", "mean", "min", "max", "median", "distinct"])
async def test_a_row_that_is_the_sum_of_the_others_is_named_whatever_it_is_called(function: str) -> None:
    said = "may be a total of the others, since it is their sum; it is counted]"
    assert f"[row 5 {said}" in await total(await of("t.csv", "k,n\na,1.5\nb,2\nc,4\n=,7.5\n"), function)
    assert f"[row 2 {said}" in await total(await of("t.csv", "k,n\nthe lot,7\na,1\nb,2\nc,4\n"), function)
    assert said not in await total(await of("t.csv", "k,n\na,1\nb,2\nc,4\nd,8\n"), function)
    assert said not in await total(await of("t.csv", "k,n\na,0\nb,0\nc,4\nd,4\n"), function)
    text = await use(
        await of("t.csv", "k,n\na,1.5\nb,2\nc,4\n=,7.5\n"), "sheet_aggregate", column="k", function="count"
    )
    assert text == f"count of k: 4\n[row 5 {said}"


# ---- numbers as people write them


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.56", "1234.56"),
        ("1.234,56", "1234.56"),
        ("1,234,567", "1234567"),
        ("1.234.567", "1234567"),
        ("1 234 567,8", "1234567.8"),
        ("1\u202f234,5", "1234.5"),
        ("1'234.50", "1234.5"),
        ("(1,234.56)", "-1234.56"),
        ("($5.00)", "-5"),
        ("-€ 5,50", "-5.5"),
        ("5,50 EUR", "5.5"),
        ("12.5 %", "0.125"),
        ("5-", "-5"),
        ("\u22125", "-5"),
        ("0,125", "0.125"),
        ("1234,567", "1234.567"),
        ("1e3", "1000"),
        ("007", "7"),
        ("9007199254740993", "9007199254740993"),
        ("12345678901234567890.12", "12345678901234567890.12"),
    ],
)
def test_a_number_is_read_however_it_is_written(text: str, value: str) -> None:
    found = read_number(text)
    assert found is not None
    assert (found.value, found.other) == (Decimal(value), None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n/a",
        "1.2.3",
        "01.02.2026",
        "2026-01-02",
        "12 kg",
        "1,23,4",
        "NaN",
        "inf",
        "--5",
        "(5",
        "1.",
        "5%%",
    ],
)
def test_what_is_no_number_is_none(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize("text", ["1,234", "1.234", "12.345", "999,999"])
def test_what_can_be_read_in_two_ways_is_read_in_none_unless_somebody_says(text: str) -> None:
    found = read_number(text)
    assert found is not None
    assert found.by(None) is None
    assert {found.by("."), found.by(",")} == {
        Decimal(re.sub(r"[.,]", "", text)),
        Decimal(text.replace(",", ".")),
    }


async def test_a_column_that_is_not_clear_is_an_error_that_says_how_to_go_on() -> None:
    book = sheet("1,234", "2,345")
    with pytest.raises(ToolError, match=r"read in two ways, like '1,234' in row 2.*decimal='\.'"):
        await total(book)
    assert (await total(book, decimal=".")).startswith("sum of n: 3579\n")
    assert (await total(book, decimal=",")).startswith("sum of n: 3.579\n")
    with pytest.raises(ToolError, match="in two ways"):
        await use(book, "sheet_filter", where=[{"column": "n", "op": ">", "value": 2}])


async def test_one_clear_cell_makes_the_others_of_its_column_clear() -> None:
    assert (await total(sheet("1,234", "0.5"))).startswith("sum of n: 1234.5\n")
    assert (await total(sheet("1.234", "1,5"))).startswith("sum of n: 1235.5\n")
    with pytest.raises(ToolError, match="in two ways"):
        await total(sheet("1,234", "0.5", "1,5"))
    assert (await total(sheet("1,234.5", "1.234,5"))).startswith("sum of n: 2469\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n;m\n1.234,50;a\n1.234;b\n", "1234.5 + 1234"),
        ("n;m\n1,5;a\n1.234;b\n", "1.5 + 1234"),
        ("n\tm\n1.5\ta\n1.234\tb\n", "1.5 + 1.234"),
        ("n,m\n1.234,a\n2.5,b\n", "1.234 + 2.5"),
        ('n,m\n"1.234,50",a\n"1.234",b\n', "1234.5 + 1234"),
        ("n;m\n1.234;0,5\n2.345;0,7\n", "1234 + 2345"),
    ],
)
async def test_a_text_file_is_read_with_the_marks_that_it_shows(text: str, expected: str) -> None:
    book = await of("a.tsv" if "\t" in text else "a.csv", text)
    figure = sum((Decimal(each) for each in expected.split(" + ")), Decimal())
    assert (await total(book)).split("\n")[0] == f"sum of n: {figure.normalize():f}"


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("n;m\n1.234;0.5\n2.345;0.7\n", "point"),
        ("n;d\n1,234;01.02\n2,345;03.04\n", "point"),
        ("n;m\n1.234;0,5\n2.345;0,7\n", "comma"),
    ],
)
async def test_what_another_column_says_about_a_number_is_said(text: str, mark: str) -> None:
    said = await total(await of("a.csv", text))
    assert f"was read with a {mark} before the fraction, as in other columns" in said


async def test_a_column_with_points_and_commas_before_fractions_says_nothing_about_the_others() -> None:
    with pytest.raises(ToolError, match=r"in two ways, like '1\.234' in row 2"):
        await total(await of("a.csv", "a;n\nx;1.234\ny;5,5\nz;1.5\n"))


async def test_a_text_file_that_shows_no_mark_is_not_guessed_at() -> None:
    with pytest.raises(ToolError, match="in two ways"):
        await total(await of("a.csv", "n;m\n1.234;a\n2.345;b\n"))


async def test_several_currencies_are_not_added() -> None:
    book = sheet("$5", "€5", "$6")
    with pytest.raises(ToolError, match=r"several currencies: \$ \(2\), € \(1\)"):
        await total(book)
    dollars = await total(book, where=[{"column": "n", "op": "contains", "value": "$"}])
    assert dollars.startswith("sum of n: 11\n")


async def test_percentages_are_hundredths_and_it_is_said() -> None:
    assert await total(sheet("12%", "8 %")) == (
        "sum of n: 0.2\n[2 cells are text that was read as a number]\n[2 cells are percentages, taken as hundredths]"
    )


# ---- exactness


async def test_large_numbers_and_fractions_are_added_exactly() -> None:
    assert await total(sheet(2**53 + 1, 2**53 + 1, -(2**53))) == f"sum of n: {2**53 + 2}"
    assert await total(sheet(0.1, 0.2)) == "sum of n: 0.3"
    assert await total(sheet(12345678901.55, 0.01)) == "sum of n: 12345678901.56"
    assert await total(sheet(10**24, 1)) == f"sum of n: {10**24 + 1}"
    assert await total(sheet(1, 2, 2), "mean") == "mean of n: 1.66666666666667"
    assert await total(sheet(1e300, 1e-300)) != "sum of n: 0"


async def test_a_noisy_number_is_rounded_alone_and_not_the_sum_it_is_in() -> None:
    text = await total(sheet(12345678901234.5, 0.1 + 0.2, 9999999999999.25))
    assert text.startswith("sum of n: 22345678901234.05\n[1 cell is longer than the 15 digits")
    text = await total(sheet(900719925474099, 900719925474099, 0.12345678901234568))
    assert text.startswith("sum of n: 1801439850948198.12345678901234568\n[1 cell is longer")
    assert (await total(sheet(0.7 + 0.1, 0.1 + 0.2))).startswith("sum of n: 1.1\n")
    assert (await total(sheet(1 / 3, 1 / 3, 1 / 3))).startswith("sum of n: 1\n")
    assert (await total(sheet(0.1 + 0.2, 5), "min")).startswith("min of n: 0.3\n")
    assert (await total(sheet(2**53 + 1, 0.1 + 0.2))).startswith(f"sum of n: {2**53 + 1}.3\n")
    same = [{"column": "n", "value": 0.3}]
    assert (await total(sheet(0.1 + 0.2, 5), "count", where=same)) == "count of n: 1"
    assert (await total(sheet(0.1 + 0.2, 0.3), "distinct")) == "distinct of n: 1"


@given(st.lists(st.integers(-(10**15) + 1, 10**15 - 1).map(lambda n: n / 100), min_size=1, max_size=20))
def test_what_was_written_with_two_places_is_added_exactly_beside_noise(cells: list[float]) -> None:
    tally = Tally()
    numbers = Numbers(Sheet(name="S", rows=[]), [], None)
    for cell in (*cells, 0.1 + 0.2):
        tally.take_number(0, cell, numbers, {})
    found = tally.result("sum")
    assert isinstance(found, Decimal)
    assert found == sum(map(exactly, cells), Decimal("0.3"))


async def test_long_numbers_of_a_text_file_keep_all_their_digits() -> None:
    book = await of("ids.csv", "n\n9007199254740993\n123456789012345678901234\n12345678901234567.89\n")
    rows = book.sheets[0].rows
    assert rows[1:] == [[9007199254740993], [123456789012345678901234], ["12345678901234567.89"]]
    expected = Decimal("9007199254740993") + Decimal("123456789012345678901234")
    assert (await total(book)).startswith(f"sum of n: {expected + Decimal('12345678901234567.89')}")
    assert (await total(await of("two.csv", "n\n9007199254740993\n9007199254740992\n"), "distinct")) == (
        "distinct of n: 2"
    )


async def test_what_is_no_number_at_all_is_text_and_not_an_empty_cell() -> None:
    text = await total(await of("nan.csv", "n\n1\nNaN\ninf\n\n2\n"))
    assert text == "sum of n: 3\n[2 cells are not numbers and were left out; the first: 'NaN' in row 3]"


async def test_a_cell_is_shown_with_the_digits_it_has() -> None:
    assert "| 2 | 12345678.1234567 |" in await use(sheet(12345678.1234567), "sheet_read", cells="A2")


# ---- what is left out is named


async def test_everything_that_is_no_number_is_named_by_its_kind() -> None:
    book = sheet(1, None, "", "n/a", True, "2026-01-02", "#REF!", " ", "7")
    assert await total(book) == "\n".join(
        [
            "sum of n: 8",
            "[1 cell is not a number and was left out: 'n/a' in row 5]",
            "[1 cell is a date and was left out: '2026-01-02' in row 7]",
            "[1 cell is an error of the spreadsheet and was left out: '#REF!' in row 8]",
            "[1 cell is true or false and was left out: 'true' in row 6]",
            "[2 cells are empty]",
            "[1 cell is text that was read as a number]",
        ]
    )


async def test_counts_say_how_many_cells_are_empty() -> None:
    book = await of("c.csv", "k,n\na,1\nb,\nc,x\n")
    assert await total(book, "count") == "count of n: 2\n[1 cell is empty]"
    assert await total(book, "mean") == (
        "mean of n: 1\n[1 cell is not a number and was left out: 'x' in row 4]\n[1 cell is empty]"
    )


async def test_distinct_values_are_told_apart_and_folded_ones_are_named() -> None:
    assert await total(sheet("A", "a", "b"), "distinct") == (
        "distinct of n: 2\n[3 if upper and lower case, or spaces at the ends, make a difference]"
    )
    assert await total(sheet("007", 7, "7", "07"), "distinct") == "distinct of n: 3"
    long = "x" * 300
    assert await total(sheet(long + "1", long + "2"), "distinct") == "distinct of n: 2"


async def test_groups_that_begin_alike_stay_two() -> None:
    long = "x" * 300
    book = Workbook(
        name="b",
        sheets=(
            Sheet(
                name="S",
                rows=[["k", "n"], [long + "1", 1], [long + "2", 2], [None, 3], [1.00000000001, 4], [1, 5]],
                total=6,
            ),
        ),
    )
    text = await total(book, group_by=["k"])
    assert len([line for line in text.split("\n") if line.startswith("| ")]) == 6
    assert "| (empty) | 3 |" in text


async def test_columns_of_one_name_and_sheets_that_were_not_named_are_named() -> None:
    rows = [["n", "n", "N"], [1, 10, 100]]
    books = Workbook(
        name="b", sheets=(Sheet(name="S", rows=rows, total=2), Sheet(name="T", rows=rows, total=2))
    )
    text = await total(books)
    assert text.split("\n")[0] == "sum of n: 1"
    assert "['n' is column A; of the same name are 'n (B)', 'N']" in text
    assert text.endswith("[sheet 'S' of b, the first of 2]")
    assert await use(books, "sheet_aggregate", column="B", function="sum", sheet="T") == "sum of n (B): 10"
    assert (await use(books, "sheet_aggregate", column="N", function="sum", sheet="T")).startswith(
        "sum of N: 100"
    )


# ---- for any cells


_cells = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.from_regex(r"\A[-(]?[$€]?\d{1,4}([.,]\d{1,4}){0,2}%?\)?\Z")
)


@given(st.lists(_cells, max_size=30))
def test_every_cell_is_a_number_or_is_named(cells: list[Any]) -> None:
    cells = [str(cell) if isinstance(cell, float) and not abs(cell) < 1e300 else cell for cell in cells]
    numbers = Numbers(Sheet(name="S", rows=[]), cells, ".")
    tally = Tally()
    for row, cell in enumerate(cells):
        if tally.take(row, cell):
            tally.take_number(row, cell, numbers, {})
    assert tally.filled + tally.empty == len(cells)
    assert len(tally.numbers) + sum(map(len, tally.left_out.values())) == tally.filled
    plain = [cell for cell in cells if isinstance(cell, int | float) and not isinstance(cell, bool)]
    only = Tally()
    for cell in plain:
        only.take_number(0, cell, numbers, {})
    if plain and all(isinstance(cell, int) for cell in plain):
        found = only.result("sum")
        assert isinstance(found, Decimal)
        assert Fraction(found) == sum(map(Fraction, plain))


@given(st.text(alphabet="0123456789.,' ()-+$€%eE", max_size=20))
def test_a_number_never_depends_on_who_reads_it_unless_it_says_so(text: str) -> None:
    found = read_number(text)
    if found is not None and found.other is None:
        assert found.by(".") == found.by(",") == found.by(None) == found.value
    numbers = Numbers(Sheet(name="S", rows=[]), [text], None)
    try:
        assert numbers.of(text) == (None if found is None else found.value)
    except Ambiguous:
        assert found is not None
        assert found.other is not None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_taken_as_it_is_written(value: float) -> None:
    assert float(exactly(value)) == value


# ---- the offline model


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("n;m\n1.234;a\n2.345;b\n", "**Not computed:** n has numbers that can be read in two ways"),
        ("n\n1\nx\n", "[1 cell is not a number and was left out: 'x' in row 3]"),
    ],
)
async def test_the_offline_model_passes_on_what_a_figure_lacks(tmp_path: Path, data: str, says: str) -> None:
    attached = await attach_bytes("d.csv", data.encode())
    async with Retinue(model="offline", db=MemoryStore(), cwd=tmp_path, environ={}) as retinue:
        run_id = await retinue.start("general", "What is the sum of the column n?", attachments=[attached])
        report = await retinue.wait(run_id)
    assert says in report.text


async def test_code_gets_an_exception_and_not_a_figure_over_some_of_the_rows(tmp_path: Path) -> None:
    code = """try:
    print(await sheet_aggregate(column='n', function='sum'))
except Exception as error:
    print('refused:', error)
"""
    model = ScriptedModel([call("run_code", code=code), "done"])
    spec = AgentSpec(name="coder", description="codes", prompt="You code.", mode="code")
    attached = await attach_bytes("d.csv", b"n;m\n1.234;a\n2.345;b\n")
    store = MemoryStore()
    async with Retinue(model=model, db=store, cwd=tmp_path, environ={}, agents=[spec]) as retinue:
        run_id = await retinue.start("coder", "add up", attachments=[attached])
        await retinue.wait(run_id)
    told = [event.text for event in await store.events(run_id) if isinstance(event, ToolReturned)]
    assert "refused: n has numbers that can be read in two ways" in told[-1]


def test_workbooks_that_were_kept_before_can_still_be_read() -> None:
    import msgspec

    old = b'[{"name":"b","sheets":[{"name":"S","rows":[["n"],[1]],"total":2}]}]'
    (book,) = msgspec.json.decode(old, type=list[Workbook])
    assert book.sheets[0].is_whole
    assert attachments.describe_workbook(book).startswith("Sheet 'S': 2 rows, 1 columns")


# ── a title above the header ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("above", [["Sales of 2026"], ["Sales of 2026", "as of May"], ["Sales of 2026", ""]])
async def test_a_title_above_the_names_of_the_columns_is_no_header(above: list[str]) -> None:
    rows = [[each] if each else [] for each in above] + [["Region", "n"], ["North", 2], ["South", 3]]
    book = parsed(_xlsx({"S": "".join(_row(at, *cells) for at, cells in enumerate(rows, 1) if cells)}))
    said = await total(book)
    assert "5" in said
    assert f"row {len(above) + 1} names the columns; what stands above it is not counted" in said


@pytest.mark.parametrize(
    "rows",
    [
        [["n"], [2], [3]],
        [["n"], [2, "a remark"], [3, "another"]],
        [["n"], ["x", "y"], ["z", "w"]],
        [["n", "m"], [2, 1], [3, 1]],
    ],
)
def test_a_row_that_may_be_data_is_not_taken_for_the_header(rows: list[list[Any]]) -> None:
    book = parsed(_xlsx({"S": "".join(_row(at, *cells) for at, cells in enumerate(rows, 1))}))
    assert as_table(book.sheets[0]).header == 0
    assert book.sheets[0].remarks == []
