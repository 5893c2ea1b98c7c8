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
export {
  isSignedIn,
  signIn,
  signInFetch,
  signOut,
  type SignInBrowser,
  type SignInOptions,
  type SignInServer,
} from './sign-in.ts';
export { followMcpTools, mcpTools, type FollowOptions, type McpToolsOptions } from './tools.ts';
