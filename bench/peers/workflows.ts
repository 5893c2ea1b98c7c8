import { Annotation, MemorySaver, StateGraph, type BaseCheckpointSaver } from '@langchain/langgraph';
import { Mastra } from '@mastra/core';
import { InMemoryStore } from '@mastra/core/storage';
import { createStep, createWorkflow } from '@mastra/core/workflows';
import { z } from 'zod';

process.env['MASTRA_TELEMETRY_DISABLED'] = '1';

/* Chains of steps that add 1, as workflows of other libraries. */

/** Their types follow the steps, which are made in a loop. */
interface Graph {
  addNode(id: string, step: (state: { readonly sum: number }) => Promise<object>): Graph;
  addEdge(from: string, to: string): Graph;
  compile(options: object): { invoke(input: object, options: object): Promise<{ readonly sum: number }> };
}

interface Chain {
  then(step: object): Chain;
  commit(): unknown;
}

function langgraph(steps: number, checkpointer?: BaseCheckpointSaver): () => Promise<void> {
  const state = Annotation.Root({ sum: Annotation<number> });
  const graph = new StateGraph(state) as unknown as Graph;
  let before = '__start__';
  for (let index = 0; index < steps; index++) {
    const id = `s${index}`;
    graph.addNode(id, async ({ sum }: { readonly sum: number }) => ({ sum: sum + 1 })).addEdge(before, id);
    before = id;
  }
  const compiled = graph.addEdge(before, '__end__').compile(checkpointer ? { checkpointer } : {});
  let threads = 0;
  return async () => {
    const configurable = { thread_id: `t${threads++}` };
    const { sum } = await compiled.invoke({ sum: 0 }, { recursionLimit: 2 * steps, configurable });
    if (sum !== steps) throw new Error('langgraph: the chain was not run');
  };
}

function mastra(steps: number): () => Promise<void> {
  const schema = z.object({ sum: z.number() });
  const common = { inputSchema: schema, outputSchema: schema };
  const execute = async ({ inputData }: { readonly inputData: { readonly sum: number } }) => ({
    sum: inputData.sum + 1,
  });
  let workflow = createWorkflow({ id: 'chain', ...common }) as unknown as Chain;
  for (let index = 0; index < steps; index++) {
    workflow = workflow.then(createStep({ id: `s${index}`, ...common, execute }));
  }
  const host = new Mastra({
    workflows: { chain: workflow.commit() as never },
    storage: new InMemoryStore(),
    logger: false,
  });
  return async () => {
    const run = await host.getWorkflow('chain').createRun();
    const ended = (await run.start({ inputData: { sum: 0 } } as never)) as {
      readonly result?: { readonly sum: number };
    };
    if (ended.result?.sum !== steps) throw new Error('mastra: the chain was not run');
  };
}

export const chains: Readonly<Record<string, (steps: number) => () => Promise<void>>> = {
  'LangGraph, without persistence': (steps) => langgraph(steps),
  'LangGraph, MemorySaver': (steps) => langgraph(steps, new MemorySaver()),
  'Mastra, InMemoryStore': mastra,
};
