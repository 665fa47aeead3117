-- How hard the model of a run was last asked to think, as its provider took it.

{added};
