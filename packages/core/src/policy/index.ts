export { checkRules, type CheckedRules, type RuleProblem } from './check.ts';
export { executionLine, type ExecutionContext, type ExecutionLine } from './execution-line.ts';
export type { AddressRange, Analysers, CommandFacts, PathFacts, PlaceAnalysers, Program, UrlFacts } from './facts.ts';
export { compileGlob, matchesGlob, type Glob } from './glob.ts';
export {
  policy,
  type ExplainedCall,
  type Explanation,
  type PolicyOptions,
  type RulePolicy,
  type RuleReport,
} from './policy.ts';
export type {
  AskVerdict,
  JudgeContext,
  JudgedCall,
  Place,
  Policy,
  LimitedRun,
  PolicyLimits,
  Principal,
  Touch,
  Verdict,
} from './port.ts';
export { privatePaths } from './private.ts';
export { latestTimes, memoryRates, type RateStore } from './rate.ts';
export type { RuleContext, RuleName } from './rule.ts';
export type { Lists, Permission, PolicyRules } from './rules.ts';
export { REQUIRED_PROMISES } from './sandbox.ts';
export { stricterVerdict } from './verdicts.ts';
