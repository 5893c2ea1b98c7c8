export {
  loadSkillFolder,
  loadSkills,
  MAX_KEPT_BYTES,
  MAX_SKILLS,
  type LoadedSkill,
  type LoadedSkills,
  type SkillRoot,
} from './load-skills.ts';
export { isSkillName, parseSkill, type ParsedSkill, type SkillProblem } from './parse-skill.ts';
export { skillTool, type SkillToolOptions } from './skill-tool.ts';
export { frontMatter, yamlTable } from '../yaml-table.ts';
