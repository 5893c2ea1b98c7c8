import type { CompiledStep, Flow, Level } from './definition.ts';

/* Pictures of a workflow: the places of its steps, a Mermaid text and an SVG. */

/** The steps in columns: each is right of everything that it needs. */
export interface WorkflowGraph {
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly GraphEdge[];
}

export interface GraphNode {
  readonly id: string;
  readonly action: string;
  /** The tool, agent or workflow. */
  readonly calls?: string;
  readonly column: number;
  readonly row: number;
  /** The step that it is inside of. */
  readonly inside?: string;
}

export interface GraphEdge {
  readonly from: string;
  readonly to: string;
  /** `then`, `else`, `on_error` and `undo` are taken only sometimes. */
  readonly kind: 'needs' | 'then' | 'else' | 'on_error' | 'undo';
}

/** The steps of a workflow and what leads from one to the other. */
export function workflowGraph({ top, steps }: Flow): WorkflowGraph {
  const nodes: GraphNode[] = [];
  const edges: GraphEdge[] = [];
  const columns = new Map<string, number>();
  const rows = new Map<number, number>();

  function place(one: CompiledStep, column: number, inside?: string): void {
    const row = rows.get(column) ?? 0;
    rows.set(column, row + 1);
    columns.set(one.id, column);
    const { id, action, target, inner } = one;
    nodes.push({ id, action, ...(target !== undefined && { calls: target }), column, row, ...(inside && { inside }) });
    if (inner) placeLevel(inner, column + 1, id);
  }

  function placeLevel({ ids }: Level, first: number, inside?: string): void {
    for (const id of ids) {
      const one = steps.get(id)!;
      const column = Math.max(first, ...one.needs.map((need) => lastColumn(need) + 1));
      place(one, column, inside);
      for (const need of one.needs) {
        const isTaken = one.taken?.condition === need;
        edges.push({ from: need, to: id, kind: isTaken ? (one.taken!.if ? 'then' : 'else') : 'needs' });
      }
      if (inside && one.needs.length === 0) edges.push({ from: inside, to: id, kind: 'needs' });
      for (const [kind, other] of [
        ['on_error', one.onError],
        ['undo', one.undo],
      ] as const) {
        const spare = steps.get(other ?? '');
        if (!spare) continue;
        if (!columns.has(spare.id)) place(spare, column + 1, inside);
        edges.push({ from: id, to: spare.id, kind });
      }
    }
  }

  /** Of a step with everything inside of it. */
  function lastColumn(id: string): number {
    const { inner } = steps.get(id)!;
    return Math.max(columns.get(id)!, ...(inner?.ids ?? []).map(lastColumn));
  }

  placeLevel(top, 0);
  return { nodes, edges };
}

/** What Mermaid takes for something else than a node. */
const WORDS = /^(end|graph|subgraph|flowchart|direction|style|class|classDef|linkStyle|click|default)$/i;

/** A flowchart for whatever shows Mermaid. */
export function mermaidText(flow: Flow): string {
  const { nodes, edges } = workflowGraph(flow);
  const taken = new Set(nodes.map(({ id }) => id));
  const freeName = (id: string): string => (taken.has(id) ? freeName(`${id}_`) : id);
  const names = new Map(nodes.map(({ id }) => [id, WORDS.test(id) ? freeName(id) : id]));
  const lines = nodes.map((node) => `  ${names.get(node.id)}["${node.id}<br/>${labelOf(node)}"]`);
  const arrows = edges.map((edge) => {
    const { kind } = edge;
    const [from, to] = [names.get(edge.from), names.get(edge.to)];
    if (kind === 'needs') return `  ${from} --> ${to}`;
    return kind === 'undo' || kind === 'on_error' ? `  ${from} -. ${kind} .-> ${to}` : `  ${from} -- ${kind} --> ${to}`;
  });
  return `flowchart LR\n${[...lines, ...arrows].join('\n')}\n`;
}

function labelOf({ action, calls }: GraphNode): string {
  return calls === undefined ? action : `${action} ${calls.replaceAll(/["<>]/g, '')}`;
}

const WIDTH = 170;
const HEIGHT = 46;
const GAP_X = 60;
const GAP_Y = 22;

/** A picture without scripts and without anything from elsewhere. */
export function svgPicture(flow: Flow): string {
  const { nodes, edges } = workflowGraph(flow);
  const at = new Map(nodes.map((node) => [node.id, placeOf(node)]));
  const width = Math.max(...nodes.map((node) => placeOf(node).x)) + WIDTH + GAP_Y;
  const height = Math.max(...nodes.map((node) => placeOf(node).y)) + HEIGHT + GAP_Y;
  const lines = edges.map(({ from, to, kind }) => {
    const dash = kind === 'needs' ? '' : ' stroke-dasharray="5 4"';
    return `  <path d="${edgePath(at.get(from)!, at.get(to)!)}" fill="none" stroke="#888"${dash} marker-end="url(#arrow)"/>`;
  });
  const boxes = nodes.map((node) => {
    const { x, y } = placeOf(node);
    return (
      `  <rect x="${x}" y="${y}" width="${WIDTH}" height="${HEIGHT}" rx="6" fill="#fff" stroke="#444"/>\n` +
      `  <text x="${x + 10}" y="${y + 19}" font-weight="bold">${escaped(node.id, 22)}</text>\n` +
      `  <text x="${x + 10}" y="${y + 36}" fill="#555">${escaped(labelOf(node), 26)}</text>`
    );
  });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" ` +
    `font-family="sans-serif" font-size="12">\n  <title>${escaped(flow.name, 60)}</title>\n` +
    '  <defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">' +
    '<path d="M0 0 8 4 0 8z" fill="#888"/></marker></defs>\n' +
    `${[...lines, ...boxes].join('\n')}\n</svg>\n`
  );
}

interface Place {
  readonly x: number;
  readonly y: number;
}

function placeOf({ column, row }: Pick<GraphNode, 'column' | 'row'>): Place {
  return { x: GAP_Y + column * (WIDTH + GAP_X), y: GAP_Y + row * (HEIGHT + GAP_Y) };
}

function edgePath(from: Place, to: Place): string {
  const [startX, startY, endX, endY] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
  const middle = (startX + endX) / 2;
  return `M${startX} ${startY}C${middle} ${startY} ${middle} ${endY} ${endX} ${endY}`;
}

function escaped(text: string, most: number): string {
  const cut = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return cut.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
