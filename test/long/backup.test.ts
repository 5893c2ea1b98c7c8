import { testBackupsUnderLoad } from '../crash/backup/under-load.ts';

/** The same as in test/crash/backup.test.ts, with more processes and backups. */
testBackupsUnderLoad({ writers: 4, backups: 8 });
