import { SUMMARIES, type CommandGroup } from '../command-line/command.ts';
import { mcpServeCommand } from './serve.ts';

export const mcpGroup: CommandGroup = {
  name: 'mcp',
  summary: SUMMARIES.mcp,
  commands: [mcpServeCommand],
  notes: [],
};
