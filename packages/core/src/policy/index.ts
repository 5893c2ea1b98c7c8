export type { AskVerdict, JudgeContext, JudgedCall, Policy, Principal, Touch, Verdict } from './port.ts';
export { stricterVerdict } from './verdicts.ts';
