export { ApiError, type ApiErrorCode, type ApiErrorDetails, type ApiErrorType } from './api-error.ts';
export type { NumberedEvent as ChatEvent } from './apis/chat/wire.ts';
export type { InjectionCheck } from './engine/engine.ts';
export type { AgentWriter } from './apis/agents/routes.ts';
export type { ServedModels, ServerStore } from './engine/engine.ts';
export type { McpServersOptions } from './engine/mcp-servers.ts';
export type { WebhookEvent, WebhookOptions } from './engine/webhooks.ts';
export type { ExecutorCall, OfferedFunction, RequestTool, ToolExecutor } from './engine/executors.ts';
export { hashKey, newKey, type ApiKey, type Scope } from './http/keys.ts';
export { logRecord } from './apis/logs/filter.ts';
export type { KeptLog, LogFilter, LogLine, WireLogs } from './apis/logs/wire.ts';
export type { WireStatus, WireToolMetrics } from './apis/metrics/wire.ts';
export { wireMemory } from './apis/memory/wire-memory.ts';
export { serverMemory, type ServerMemory, type ServerMemoryOptions } from './engine/server-memory.ts';
export { newLog } from './http/log.ts';
export { newMetrics, type Counter, type Histogram, type Metrics } from './http/metrics.ts';
export {
  mcpAgent,
  type McpAgent,
  type McpAgentDefinition,
  type McpOptions,
  type McpRegistry,
} from './apis/mcp/options.ts';
export type { ModelTest, TestModel } from './server-routes.ts';
export type { AgentSettings, ReplaceableOptions, TreadleServerOptions } from './server-options.ts';
export { serverAgents, treadleServer, type TreadleServer } from './treadle-server.ts';
