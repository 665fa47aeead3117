"""Retinue inside an editor, over the Agent Client Protocol: `retinue acp`.

A session is a conversation, and so one run: its id is the run's, and what an editor sees of it is read from
the same log as everything else. `agent` answers requests, `session` is one conversation, `updates` says
what an event is called there, `permission` puts a question, `buffers` are the editor's unsaved files,
`prompting` what a person wrote, `choices` what they may set. Needs the extra `acp`.
"""
