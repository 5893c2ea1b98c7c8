export { mermaidText, svgPicture, workflowGraph, type WorkflowGraph } from './draw.ts';
export { dryRun, type PlannedStep } from './dry-run.ts';
export { eventInputProblems, inputsForEvent } from './event-inputs.ts';
export { flowOf, workflowHost } from './host.ts';
export { checkWorkflow, isWorkflow, type WorkflowAgent, type WorkflowDefinition } from './parse-workflow.ts';
export { entryBeforeStep, resultsOf, stepStatuses, type StepStatus } from './results.ts';
