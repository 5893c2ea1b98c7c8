export { AgentFileError, folderAgents, type FolderAgents, type FolderAgentsOptions } from './folder-agents.ts';
export {
  agentFileText,
  agentFormat,
  parseAgentFile,
  type AgentFileProblem,
  type ParsedAgentFile,
} from './parse-agent.ts';
