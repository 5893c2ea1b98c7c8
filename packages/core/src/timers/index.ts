export {
  resumeDue,
  wakeRuns,
  type DueOptions,
  type DueRun,
  type ResumeDueRun,
  type WakeOptions,
  type Waker,
} from './resume-due.ts';
export { sleepTool, type SleepOptions } from './sleep.ts';
