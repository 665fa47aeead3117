"""Skills: folders with a `SKILL.md`, instructions for one kind of task (the Agent Skills format).

`load_skills` finds them, `SkillFiles` keeps them for an app and says which of them an agent is offered,
`check_skills` looks them over. A skill is text and files: it grants nothing, whatever it says.
"""

from retinue.skills.check import check_skills
from retinue.skills.loader import SkillCatalogue, SkillFiles, load_skills
from retinue.skills.skill import Skill

__all__ = ["Skill", "SkillCatalogue", "SkillFiles", "check_skills", "load_skills"]
