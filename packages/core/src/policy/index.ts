export type { AddressRange, Analysers, CommandFacts, PathFacts, Program, UrlFacts } from './facts.ts';
export type { AskVerdict, JudgeContext, JudgedCall, Policy, Principal, Touch, Verdict } from './port.ts';
export type { Lists, Permission, PolicyRules } from './rules.ts';
export { stricterVerdict } from './verdicts.ts';
