export { ApiError, type ApiErrorDetails, type ApiErrorType } from './api-error.ts';
export { toAgUiResponse, type AgUiIds } from './conversations/ag-ui.ts';
export { toUIMessageStreamResponse } from './conversations/ui-stream.ts';
export type { ServedModels, ServerStore } from './engine/engine.ts';
export type { WebhookEvent, WebhookOptions } from './engine/webhooks.ts';
export type { ExecutorCall, OfferedFunction, RequestTool, ToolExecutor } from './engine/executors.ts';
export { hashKey, newKey, type ApiKey, type Scope } from './http/keys.ts';
export { newLog } from './http/log.ts';
export { treadleServer, type TreadleServer, type TreadleServerOptions } from './treadle-server.ts';
