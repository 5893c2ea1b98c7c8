/** Loaded before a program: its host has another name, as after a change of the name, or in a container that shares pids. */
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';

os.hostname = () => 'renamed';
syncBuiltinESMExports();
