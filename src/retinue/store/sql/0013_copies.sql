-- Work in copies of the project that the project has not: of a run itself, and of all below it.

{added};
