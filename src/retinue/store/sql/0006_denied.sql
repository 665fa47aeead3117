-- How many calls a rule denied, in a run and in everything below it.

{added};
