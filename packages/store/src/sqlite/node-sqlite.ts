import type * as sqlite from 'node:sqlite';

/** `node:sqlite`. With a static import, an old Node would name this module and not the Node that is needed. */
const module: typeof sqlite = process.getBuiltinModule('node:sqlite');

export type DatabaseSync = sqlite.DatabaseSync;
export const DatabaseSync: typeof sqlite.DatabaseSync = module.DatabaseSync;
export const backup: typeof sqlite.backup = module.backup;
