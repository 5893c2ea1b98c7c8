import type { ContinueOptions, LiveRun, LoopOptions, LoopResult } from './options.ts';
export function runLoop(_options: LoopOptions | ContinueOptions): Promise<LoopResult> { throw new Error('being written'); }
export function streamLoop(_options: LoopOptions | ContinueOptions): LiveRun { throw new Error('being written'); }
