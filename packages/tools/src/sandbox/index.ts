export {
  DEFAULT_REQUIRED,
  ENGINE_NAMES,
  PROMISE_NAMES,
  PROMISES,
  type Engine,
  type EngineName,
  type PromiseName,
} from './engine.ts';
export { installedEngine } from './engines.ts';
export { engineProblem, findEngine, probeEngine, type ProbeResult } from './probe.ts';
export { sandboxed, type SandboxOptions } from './sandboxed.ts';
