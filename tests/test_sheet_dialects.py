"""A table in a text file is read as it was meant, or what is not sure about it is said beside every figure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.attachment_csv import guess_delimiter, parse_csv
from retinue.attachment_parsers import ParserLimits, Tables
from retinue.attachments import attach_bytes, decode, describe_workbook
from retinue.errors import ToolError
from retinue.tools.sheet_table import as_table
from retinue.tools.sheets import Workbook, aggregate
from test_sheet_totals import use

FUNCTIONS = ["count", "sum", "mean", "median", "min", "max", "distinct"]


async def of(name: str, data: bytes | str) -> Workbook:
    """Read as an attachment is, but right here, which is quicker than in a process of its own."""
    text = decode(name, data) if isinstance(data, bytes) else data
    found = parse_csv(text.encode(), ParserLimits())
    assert isinstance(found, Tables)
    return Workbook(name=name, sheets=found.sheets)


async def total(book: Workbook, function: str = "sum", **more: Any) -> str:
    return await use(book, "sheet_aggregate", column="amount", function=function, **more)


def lines(strange: dict[int, str], count: int = 1000, delimiter: str = ",") -> str:
    """A table of names and amounts of 10, some names of which are strange."""
    rows = (f"{strange.get(i, f'item{i}')}{delimiter}10" for i in range(count))
    return f"name{delimiter}amount\n" + "\n".join(rows) + "\n"


# ---- quotation marks


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    "strange",
    [
        {5: '"item'},
        {5: '"5in. pipe', 700: '"5in. pipe'},
        {5: '"item', 700: 'pipe 5"'},
        {5: '"item', 6: 'pipe 5"'},
        {5: '"item" x'},
        {999: '"item'},
        {5: '"item', 6: '"a, b"', 7: '"c"'},
        {5: '"5\\" pipe"'},
    ],
)
async def test_a_stray_quotation_mark_swallows_no_row(strange: dict[int, str], delimiter: str) -> None:
    book = await of("stray.csv", lines(strange, delimiter=delimiter))
    text = await total(book)
    assert text.split("\n")[0] == "sum of amount: 10000"
    assert "quotation mark" in text
    for function, figure in {"count": 1000, "mean": 10, "min": 10, "max": 10, "distinct": 1}.items():
        assert (await total(book, function)).startswith(f"{function} of amount: {figure}\n[")
    one = await total(book, where=[{"column": "name", "op": "starts", "value": "item9"}])
    assert "quotation mark" in one
    assert "quotation mark" in await use(book, "sheet_filter", where=[])
    assert "quotation mark" in describe_workbook(book)


@pytest.mark.parametrize("function", FUNCTIONS)
async def test_rows_that_may_be_inside_of_a_cell_are_an_error(function: str) -> None:
    """Nothing but text in the table, so that nobody can say whether `b` is a row or the end of a cell."""
    book = await of("text.csv", 'name,amount\n"a,x\nb,y\nc",z\nd,w\n')
    with pytest.raises(ToolError, match=r"1 row .*row 2.*doubtful='keep'"):
        await total(book, function)
    assert "row 2" in await total(book, function, doubtful="keep")
    skipped = await total(book, "count", doubtful="skip")
    assert skipped.startswith("count of amount: 1\n")
    assert "left out" in skipped


async def test_line_breaks_in_a_cell_are_read_and_named() -> None:
    book = await of("notes.csv", 'note,amount\n"Dear John,\nhello\n\nyours",5\n"a ""b"" c",7\nx,8\n')
    assert book.sheets[0].rows[1:3] == [["Dear John,\nhello\n\nyours", 5], ['a "b" c', 7]]
    assert await total(book) == "sum of amount: 20\n[1 cell of the file has line breaks in it: row 2]"


async def test_quoted_cells_with_the_delimiter_in_them_are_nothing_to_speak_of() -> None:
    text = 'name,amount\n"Smith, John","1,234.50"\n"5"" pipe",2.50\n3" pipe,1\n'
    assert (await total(await of("q.csv", text))).split("\n")[0] == "sum of amount: 1238"


# ---- rows longer or shorter than the header


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name,amount\na,1,234\nb,5\nc,2,000\n", r"2 rows have more cells than the header has names.*row 2"),
        ("name,amount\na,1,234\nb,5,678\n", r"2 rows have more cells than the header .*row 2"),
        ("name,note,amount\na,x,5\nb\ny,7\nc,z,8\n", r"2 rows have fewer cells than the header .*row 3"),
        ("name,amount,x\na,1,234,\nb,5,x\n", r"1 row has more cells than the header .*row 2"),
        ("x,name,amount\n1,a,5\n2,b6\n", r"1 row has fewer cells than the header .*row 3"),
    ],
)
async def test_rows_that_do_not_fit_the_header_are_an_error_that_names_them(
    text: str, says: str, function: str
) -> None:
    book = await of("ragged.csv", text)
    with pytest.raises(ToolError, match=says):
        await total(book, function)
    with pytest.raises(ToolError, match=says):
        await total(book, function, group_by=["name"])
    with pytest.raises(ToolError, match=says):  # a shifted row may have been meant by the condition too
        await total(book, function, where=[{"column": "name", "value": "zzz"}])
    assert "counted as they" in await total(book, function, doubtful="keep")
    assert "left out" in await total(book, function, doubtful="skip")


async def test_ragged_rows_are_named_where_rows_are_shown() -> None:
    data = "name,amount\na,1,234\nb,5\n"
    book = await of("ragged.csv", data)
    assert "more cells than the header" in await use(book, "sheet_filter", where=[])
    assert "more cells than the header" in await use(book, "sheet_read", cells="A1:C3")
    assert "more cells than the header" not in await use(book, "sheet_read", cells="A3:C3")
    assert "more cells than the header" in (await attach_bytes("ragged.csv", data.encode())).text
    assert (await total(book, doubtful="skip")).startswith("sum of amount: 5\n")


async def test_empty_cells_and_lines_at_the_ends_are_no_raggedness() -> None:
    text = "name,amount,\na,1\nb,2,,,\n\nc,3,\n,,\n"
    assert await total(await of("ends.csv", text)) == (
        "sum of amount: 6\n[row 5 may be a total of the others, since it is their sum; it is counted]"
    )


async def test_a_delimiter_at_the_end_of_every_row_is_no_raggedness() -> None:
    assert await total(await of("ends.csv", "name,amount\na,5,\nb,7,\nc,9,\n")) == "sum of amount: 21"


# ---- delimiters


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("Betrag, netto;Betrag, brutto\n1,50;2,50\n3,50;4,50\n", ";"),
        ("amount;other;x, y, z\n1,5;2,5;3,5\n2,5;2,5;3,5\n", ";"),
        ('"a;b;c;d",amount\n"e;f;g;h",5\n', ","),
        ("name,tags\na,x;y\nb,x;y;z\n", ","),
        ("Report 2026\n\nname;amount\na, b, c;1,5\nd;2,5\n", ";"),
        ("a\tb, c\n1,5\t2,5\n", "\t"),
        ("sep=;\na,b;c,d\n1,2;3,4\n", ";"),
        ("name|when, where\na|1,2\n", "|"),
    ],
)
def test_the_delimiter_is_the_one_that_parts_every_row_alike(text: str, delimiter: str) -> None:
    assert guess_delimiter(text)[0] == delimiter


async def test_headers_with_commas_between_semicolons_are_read() -> None:
    book = await of("de.csv", "Betrag, netto;Betrag, brutto\n1,50;2,50\n3,50;4,50\n")
    text = await use(book, "sheet_aggregate", column="Betrag, netto", function="sum")
    assert text.startswith("sum of Betrag, netto: 5\n")
    with pytest.raises(ToolError, match="no column 'Betrag'"):
        await use(book, "sheet_aggregate", column="Betrag", function="sum")


async def test_a_name_that_was_parted_like_its_cells_is_named() -> None:
    said = "'net' in the header may be the end of the name before it"
    assert said in await total(await of("n.csv", "name,amount, net,x\na,0,01,y\nb,0,02,y\n"))
    assert said not in await total(await of("n.csv", "name, amount, net, x\na, 5, 4, y\n"))


@pytest.mark.parametrize("header", ["amount", "amount, net"])
async def test_one_column_with_decimal_commas_stays_one(header: str) -> None:
    book = await of("one.csv", f"{header}\n1,50\n2,50\n10,25\n")
    text = await use(book, "sheet_aggregate", column=header, function="sum")
    assert text.startswith("sum of " + header + ": 14.25\n")


async def test_excels_line_about_the_delimiter_is_no_header() -> None:
    book = await of("sep.csv", "sep=;\nname;amount\na;1,5\nb;2,5\n")
    assert (await total(book)).startswith("sum of amount: 4\n")


# ---- thousands


async def test_what_was_assumed_about_a_point_is_said() -> None:
    book = await of("t.csv", "amount,x\n1.234,a\n2.500,b\n")
    text = await total(book)
    assert text.startswith("sum of amount: 3.734\n")
    assert "'1.234' in row 2 was read with a point before the fraction" in text
    assert (await total(book, decimal=",")).startswith("sum of amount: 3734\n")
    for function in ("mean", "median", "min", "max"):
        assert "with a point before the fraction" in await total(book, function)
    big = [{"column": "amount", "op": ">", "value": 1.5}]
    assert "with a point before the fraction" in await total(book, "count", where=big)
    assert "with a point before the fraction" in await use(book, "sheet_filter", where=big)
    assert "with a point before the fraction" in await use(book, "sheet_filter", where=[], sort_by="amount")
    assert await total(book, "count") == "count of amount: 2"


# ---- encodings


@pytest.mark.parametrize(
    "text",
    [
        "amount;name\n€ 5,50;é\n2,50;b\n",
        "Straße;Größe\nMünchen;5\n",
        "prix;où\n5 €;à côté\n",
        "año;descripción\n1;¿Qué? ¡Sí!\n",
        "beløp;på\n1;æøå\n",
        "name,price\n“quoted” – it’s,£5\n",
    ],
)
def test_western_text_is_read_as_windows_wrote_it(text: str) -> None:
    assert decode("a.csv", text.encode("cp1252")) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Съешь же ещё этих мягких французских булок, да выпей чаю. " * 5, "cp1251"),
        ("Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, και πάλι το ίδιο. " * 5, "cp1253"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy. " * 5, "cp1250"),
    ],
)
def test_other_scripts_are_not_taken_for_western_ones(text: str, encoding: str) -> None:
    assert decode("a.txt", text.encode(encoding)) == text


async def test_an_amount_in_euros_of_an_old_file_is_added() -> None:
    book = await of("e.csv", "amount;name\n€ 5,50;é\n2,50;b\n".encode("cp1252"))
    assert (await total(book)).startswith("sum of amount: 8\n")


# ---- any table in any dialect


_STYLES = [(".", ""), (",", ""), (".", ","), (",", "."), (",", " "), (".", "'")]


@st.composite
def _tables(draw: st.DrawFn) -> tuple[bytes, Decimal]:
    """A table of names and amounts as some program wrote it, well or badly; and the true sum."""
    delimiter = draw(st.sampled_from(",;\t|"))
    mark, group = draw(st.sampled_from(_STYLES))
    places = draw(st.sampled_from([0, 0, 2, 3]))
    always, careless = draw(st.booleans()), draw(st.booleans())
    names = st.text(alphabet='ab ,;|"é', max_size=6)
    amounts = draw(st.lists(st.integers(-(10**7), 10**7), min_size=1, max_size=12))

    def cell(text: str) -> str:
        needed = any(each in text for each in (delimiter, '"', "\n"))
        if always or (needed and not careless):
            return '"' + text.replace('"', '""') + '"'
        return text

    header = draw(st.sampled_from(["amount", "amount, net", "Betrag"]))
    rows = [[cell("name"), cell(header), cell("x")]]
    for amount in amounts:
        value = Decimal(amount).scaleb(-places)
        shown = f"{value:,.{places}f}".replace(",", "G").replace(".", mark).replace("G", group)
        rows.append([cell(draw(names)), cell(shown), cell("y")])
        # One cell too few and one too many in the same row look like a right one to everybody.
        if careless and delimiter not in "".join(rows[-1]) and draw(st.integers(0, 9)) == 0:
            rows[-1].pop()
    text = draw(st.sampled_from(["\n", "\r\n"])).join(delimiter.join(row) for row in rows)
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "cp1252", "utf-16"]))
    return text.encode(encoding), sum((Decimal(each).scaleb(-places) for each in amounts), Decimal(0))


def _said(data: bytes) -> str | None:
    """What is said of the sum of the second column; None for an error."""
    try:
        found = parse_csv(decode("t.csv", data).encode(), ParserLimits())
        assert isinstance(found, Tables)
        table = as_table(found.sheets[0])
        names = [each for each in table.columns if each in ("amount", "amount, net", "Betrag")]
        return aggregate(table, names[0], "sum") if names else None
    except ToolError:
        return None


@settings(max_examples=300)
@given(_tables())
def test_a_sum_is_exact_or_says_why_it_may_not_be(table: tuple[bytes, Decimal]) -> None:
    data, truth = table
    text = _said(data)
    if text is None:
        return
    first, *notes = text.split("\n")
    figure = first.partition(": ")[2]
    if figure and Decimal(figure) == truth:
        return
    assert [each for each in notes if "text that was read as a number" not in each], (text, truth)
