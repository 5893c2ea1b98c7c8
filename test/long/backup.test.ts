import { testBackupsUnderLoad } from '../crash/backup/under-load.ts';

testBackupsUnderLoad({ writers: 4, backups: 8 });
