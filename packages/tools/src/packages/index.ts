export { runDesktopTool } from './desktop-tool.ts';
export { loadSkillDefinitions, type LoadedSkills, type LoadOptions } from './load.ts';
export { packageFingerprint, packageTool } from './package-tool.ts';
export {
  filterToolsByCapabilities,
  generateToolSchemas,
  toolDefinitionToLlm,
  type ExtendedToolSchema,
  type PackagedTool,
  type SkillPackage,
  type ToolSchema,
  type TouchTemplate,
} from './packaged-tool.ts';
export { touchesFrom } from './touches.ts';
