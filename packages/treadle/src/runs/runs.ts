import { SUMMARIES, type CommandGroup } from '../command-line/command.ts';
import { diffCommand, replayCommand } from './compare.ts';
import { deleteCommand, listCommand, pruneCommand } from './list-delete.ts';
import { cancelCommand, forkCommand, releaseCommand, resumeCommand } from './resume.ts';
import { showCommand } from './show.ts';
import { exportCommand, importCommand } from './transfer.ts';

export const runsGroup: CommandGroup = {
  name: 'runs',
  summary: SUMMARIES.runs,
  commands: [
    listCommand,
    showCommand,
    resumeCommand,
    cancelCommand,
    releaseCommand,
    forkCommand,
    replayCommand,
    diffCommand,
    exportCommand,
    importCommand,
    deleteCommand,
    pruneCommand,
  ],
  notes: ['ID may be shortened to its beginning, with or without "run_", as long as it matches only one run.'],
};
