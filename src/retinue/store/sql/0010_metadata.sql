-- What the program that started a workflow says of it: a tenant, a user.

{added};
