/** Drives a run that calls a tool of an MCP server: `node … killed-driver.ts FOLDER COMMAND ARGS`. The test kills it. */
import path from 'node:path';
import { runLoop } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { mcpServer, mcpTools } from '@treadle/tools/mcp';

const [folder, command, ...args] = process.argv.slice(2);
const server = mcpServer({ name: 'srv', command: command!, args });
await runLoop({
  model: scriptedModel([{ calls: [{ name: 'tool', arguments: { forever: true } }] }]),
  tools: await mcpTools(server),
  input: 'go',
  journal: sqliteStore(path.join(folder!, 'runs.db')),
  runId: 'run',
});
