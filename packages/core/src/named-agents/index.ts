export {
  AGENT_LABEL,
  agentBounds,
  agentModel,
  agentRun,
  recalledBy,
  runOwner,
  withRecalled,
  CHAIN_LABEL,
  agentTools,
  lackingParts,
  type AgentBounds,
  type AgentHost,
  type AgentLoopOptions,
  type AgentRequest,
  type InvokeOptions,
  type WorkflowHost,
} from './agent-run.ts';
export { agentChange, agentHost, pinnedAgent, recordedAgent, type AgentHostOptions } from './calling.ts';
export { checkNamedAgent, isAgentName, type CheckedAgent } from './check.ts';
export {
  checkInputs,
  inputSchema,
  outputSchema,
  type CheckedInputs,
  type InputProblem,
  type Inputs,
} from './fields.ts';
export { agentNarrowings, agentSource } from './governance.ts';
export {
  DEFAULT_AGENT,
  type AgentConstraints,
  type AgentDependency,
  type AgentProblem,
  type AgentRegistry,
  type AutonomyLevel,
  type Field,
  type Fields,
  type FieldType,
  type Governance,
  type NamedAgent,
} from './named-agent.ts';
export { agentLine, agentToolName, buildPrompt, inputMessage, type PromptOptions } from './prompt.ts';
export { agentNamed, agentRegistry } from './registry.ts';
export {
  agentOutput,
  agentResult,
  iterativeResult,
  terminationReason,
  type AgentResult,
  type IterativeResult,
  type TerminationReason,
} from './result.ts';
export {
  agentRuntime,
  type AgentEnvironment,
  type AgentRuntime,
  type AgentRuntimeOptions,
  type Invocation,
  type Resumption,
} from './runtime.ts';
