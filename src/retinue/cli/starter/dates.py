"""Tools of this project: every function with `@tool`. Its docstring is what the model reads."""

from datetime import UTC, date, datetime

from retinue import tool


@tool(effect="read")  # it changes nothing, so nobody is asked
def days_until(day: str) -> str:
    """How many days there are from today until a date; negative if it has passed.

    Args:
        day: the date as YYYY-MM-DD
    """
    today = datetime.now(tz=UTC).date()
    return f"{(date.fromisoformat(day) - today).days} days from today, {today.isoformat()}"
