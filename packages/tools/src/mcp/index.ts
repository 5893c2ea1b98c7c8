export {
  McpError,
  type HttpServer,
  type LeftOutTool,
  type McpErrorCode,
  type McpServer,
  type McpServerInfo,
  type McpServerOptions,
  type McpServerUse,
  type McpTool,
  type StdioServer,
} from './options.ts';
export { mcpServer } from './server.ts';
export { mcpTools, type McpToolsOptions } from './tools.ts';
