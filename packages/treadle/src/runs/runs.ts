import type { CommandGroup } from '../command-line/command.ts';
import { cancelCommand } from './cancel.ts';
import { deleteCommand } from './delete.ts';
import { diffCommand } from './diff.ts';
import { exportCommand } from './export.ts';
import { forkCommand } from './fork.ts';
import { importCommand } from './import.ts';
import { listCommand } from './list.ts';
import { pruneCommand } from './prune.ts';
import { replayCommand } from './replay.ts';
import { resumeCommand } from './resume.ts';
import { showCommand } from './show.ts';

export const runsGroup: CommandGroup = {
  name: 'runs',
  summary: 'Look at runs in the store, go on with them, branch and compare them',
  commands: [
    listCommand,
    showCommand,
    resumeCommand,
    cancelCommand,
    forkCommand,
    replayCommand,
    diffCommand,
    exportCommand,
    importCommand,
    deleteCommand,
    pruneCommand,
  ],
  notes: ['An ID may be abbreviated to its beginning, with or without "run_", as long as it is that of one run.'],
};
