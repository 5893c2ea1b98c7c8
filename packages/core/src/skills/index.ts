export { activateSkills, requestedSkills, withSkillText, type ActivatedSkills, type Activation } from './activate.ts';
export {
  governanceLines,
  MAX_LISTED_CHARS,
  modelSkills,
  skillLine,
  skillsSection,
  skillText,
  userSkills,
} from './disclosure.ts';
export { skillFolders, skillSource, type Skill } from './skill.ts';
export { skillNarrowing, toolEntry, type ToolEntry } from './skill-narrowing.ts';
