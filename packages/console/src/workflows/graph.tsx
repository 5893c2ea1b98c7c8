import { useSignal } from '@preact/signals';
import type { WireWorkflow, WireWorkflowRun } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { hrefTo } from '../router.ts';

type WorkflowGraph = WireWorkflow['graph'];
type Node = WorkflowGraph['nodes'][number];
type Step = NonNullable<WireWorkflowRun['steps']>[number];

const WIDTH = 168;
const HEIGHT = 56;
const GAP_X = 56;
const GAP_Y = 20;

interface GraphProps {
  readonly graph: WorkflowGraph;
  /** The states of a run; empty without one. */
  readonly steps: readonly Step[];
}

/** The steps of a workflow as buttons, with what leads from one to the other. The chosen one is shown below. */
export function Graph({ graph: { nodes, edges }, steps }: GraphProps): JSX.Element {
  const chosen = useSignal<string | undefined>(undefined);
  const states = new Map(steps.map((step) => [step.id, step]));
  const places = new Map(nodes.map((node) => [node.id, placeOf(node)]));
  const width = Math.max(...nodes.map((node) => placeOf(node).x)) + WIDTH + 2;
  const height = Math.max(...nodes.map((node) => placeOf(node).y)) + HEIGHT + 2;
  const node = nodes.find(({ id }) => id === chosen.value);
  return (
    <div class="workflow-graph">
      {/* It scrolls, so the keyboard has to reach it. */}
      <div class="graph-scroll" role="group" aria-label="Steps" tabIndex={0}>
        <div class="graph-area" style={{ width: `${width}px`, height: `${height}px` }}>
          <svg width={width} height={height} aria-hidden="true">
            {edges.map(({ from, to, kind }) => (
              <path
                key={`${from} ${to} ${kind}`}
                class={`edge edge-${kind}`}
                d={edgePath(places.get(from)!, places.get(to)!)}
              />
            ))}
          </svg>
          {nodes.map((one) => (
            <NodeButton
              key={one.id}
              node={one}
              status={states.get(one.id)?.status}
              isChosen={one.id === chosen.value}
              onChoose={() => (chosen.value = one.id)}
            />
          ))}
        </div>
      </div>
      {node && <StepPanel node={node} step={states.get(node.id)} />}
    </div>
  );
}

interface NodeProps {
  readonly node: Node;
  readonly status: Step['status'] | undefined;
  readonly isChosen: boolean;
  readonly onChoose: () => void;
}

function NodeButton({ node, status, isChosen, onChoose }: NodeProps): JSX.Element {
  const { x, y } = placeOf(node);
  return (
    <button
      type="button"
      class={`graph-node step-${status ?? 'none'}`}
      aria-pressed={isChosen}
      style={{ left: `${x}px`, top: `${y}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` }}
      onClick={onChoose}
    >
      <strong>{node.id}</strong>
      <span class="small">{status ?? node.calls ?? node.action}</span>
    </button>
  );
}

function StepPanel({
  node: { id, action, calls },
  step,
}: {
  readonly node: Node;
  readonly step: Step | undefined;
}): JSX.Element {
  return (
    <section class="card step-panel" aria-label={`Step ${id}`}>
      <h3>
        {id} <span class="chip">{calls === undefined ? action : `${action} ${calls}`}</span>
        {step && <span class="chip">{step.status}</span>}
        {step && step.run !== null && <a href={hrefTo('runs', step.run)}>Show its run</a>}
      </h3>
      {step?.error && <p class="problem">{`${step.error.type}: ${step.error.message}`}</p>}
      {!step && <p class="muted">{action === 'map' ? 'It has no state.' : 'Choose a run to see what it did.'}</p>}
      {step && (
        <dl>
          <Value name="Inputs" value={step.inputs} />
          <Value name="Output" value={step.output} />
        </dl>
      )}
    </section>
  );
}

const MOST_CHARS = 20_000;

function Value({ name, value }: { readonly name: string; readonly value: unknown }): JSX.Element | null {
  if (value === null) return null;
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <pre tabIndex={0}>{text.length > MOST_CHARS ? `${text.slice(0, MOST_CHARS)}…` : text}</pre>
      </dd>
    </div>
  );
}

interface Place {
  readonly x: number;
  readonly y: number;
}

function placeOf({ column, row }: Pick<Node, 'column' | 'row'>): Place {
  return { x: 1 + column * (WIDTH + GAP_X), y: 1 + row * (HEIGHT + GAP_Y) };
}

function edgePath(from: Place, to: Place): string {
  const [startX, startY, endX, endY] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
  const middle = (startX + endX) / 2;
  return `M${startX} ${startY}C${middle} ${startY} ${middle} ${endY} ${endX} ${endY}`;
}
