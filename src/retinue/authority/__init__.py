"""What calls may do, judged by what they are: shell commands read with a grammar, and the flow of data.

`approvals` holds rules and asks these modules whether a rule is meant. Nothing here asks a person, opens a
file of the project or starts a process.
"""
