export { completable, inputRequired, ResourceTemplate } from '@modelcontextprotocol/server';
export { askMcpClient, mcpClientOf, type McpClient, type McpClientRequest } from './client-input.ts';
export { mcpStdioServer, type McpStdioOptions, type McpStdioServer } from './stdio.ts';
