import { describe, expect, test } from 'vitest';
import { compileWorkflow } from './definition.ts';
import { mermaidText } from './draw.ts';
import { parseWorkflowFile } from './parse-workflow.ts';

/** The problems of a file, as `line key: message`. */
function problemsOf(steps: string, rest = ''): readonly string[] {
  const text = `description: A test\ninputs: { n: { type: integer, required: true } }\n${rest}steps:\n${steps}`;
  const parsed = parseWorkflowFile(text, '/w/flow.yaml');
  if (parsed.type === 'agent') return [];
  return parsed.problems.map(({ line, key, message }) => `${line} ${key}: ${message}`);
}

describe('a file of a workflow', () => {
  test('has the name of the file, what it calls, and the lines of its steps', () => {
    const text = `description: A test
steps:
  - { id: a, action: invoke_agent, agent: writer }
  - id: b
    action: run_tool
    tool: read
    inputs: { path: "\${{ steps.a.output.path }}" }
  - { id: c, action: sub_workflow, workflow: other }
`;
    const parsed = parseWorkflowFile(text, '/w/flow.yaml');
    expect(parsed).toMatchObject({
      type: 'agent',
      agent: {
        name: 'flow',
        inputs: {},
        tools: ['read'],
        dependencies: [{ agent: 'writer' }, { agent: 'other' }],
        workflow: { steps: [{ id: 'a' }, { id: 'b' }, { id: 'c' }] },
      },
    });
    expect(parsed.type === 'agent' && parsed.lines.get('steps[1].tool')).toBe(6);
  });

  test('can be JSON', () => {
    const definition = { name: 'x', description: 'x', steps: [{ id: 'a', action: 'transform', value: 1 }] };
    expect(parseWorkflowFile(JSON.stringify(definition), '/w/x.json').type).toBe('agent');
    expect(parseWorkflowFile('{ "name": "x",\n oops }', '/w/x.json')).toMatchObject({ problems: [{ line: 2 }] });
  });

  test.each([
    ['- { id: a, action: nonsense }', '4 steps[0].action', 'Use one of invoke_agent, run_tool'],
    ['- { id: a, action: run_tol, tool: x }', '4 steps[0].action', 'Did you mean "run_tool"?'],
    ['- { id: a, action: run_tool }', '4 steps[0]', 'It is missing'],
    ['- { id: a, action: run_tool, tool: x, retries: 2 }', '4 steps[0].retries', 'Its keys are id, action'],
    ['- { id: "a b", action: transform }', '4 steps[0].id', 'Use letters'],
    ['- { id: a, action: transform }\n- { id: a, action: transform }', '5 steps[1].id', 'Two steps have the id'],
    ['- { id: a, action: transform, depends_on: b }', '4 steps[0].depends_on', 'There is no step "b"'],
    [
      '- { id: a, action: transform, depends_on: b }\n- { id: b, action: transform, depends_on: [a] }',
      '4 steps[0]',
      'in a cycle: a → b → a',
    ],
    ['- { id: a, action: transform, value: "${{ steps.b.output }}" }', '4 steps[0].value', 'There is no step "b"'],
    ['- { id: a, action: transform, value: "${{ inputs.m }}" }', '4 steps[0].value', 'has no input "m"'],
    ['- { id: a, action: transform, value: "${{ imputs.n }}" }', '4 steps[0].value', 'Did you mean "inputs"?'],
    ['- { id: a, action: transform, value: "${{ 1 + }}" }', '4 steps[0].value', 'is not valid CEL'],
    ["- { id: a, action: transform, value: \"${{ 'a'.matches('b') }}\" }", '4 steps[0].value', '"matches"'],
    [
      '- { id: a, action: transform }\n- { id: b, action: transform, value: "${{ steps.a.text }}" }',
      '5 steps[1].value',
      'Did you mean steps.a.output.text?',
    ],
    ['- { id: a, action: transform, when: 3 }', '4 steps[0].when', 'Use an expression'],
    ['- { id: a, action: transform, timeout: soon }', '4 steps[0].timeout', 'Use seconds'],
    ['- { id: a, action: transform, retry: { times: 0 } }', '4 steps[0].retry.times', 'from 1 to 100'],
    ['- { id: a, action: transform, retry: { on: [oops] } }', '4 steps[0].retry.on[0]', 'The types are'],
    ['- { id: a, action: transform, on_error: b }', '4 steps[0].on_error', 'Use fail, continue'],
    [
      '- { id: a, action: transform, on_error: b }\n- { id: b, action: transform }\n- { id: c, action: transform, depends_on: b }',
      '6 steps[2].depends_on',
      'nothing can depend on it',
    ],
    ['- { id: a, action: sleep }', '4 steps[0]', 'either "for" or "until"'],
    ['- { id: a, action: map, over: inputs.n, steps: [] }', '4 steps[0].steps', 'It has no steps'],
    ['- { id: a, action: condition, if: "true", then: [b] }', '4 steps[0].then[0]', 'There is no step "b"'],
    ['- { id: a, action: ask, question: x, choices: [] }', '4 steps[0].choices', 'a list of texts'],
    ['- { id: a, action: transform, inputs: [1] }', '4 steps[0].inputs', 'a table of values'],
    ['- { id: a, action: transform, value: "x ${{ inputs.n" }', '4 steps[0].value', 'has no end'],
    [
      '- { id: a, action: transform, when: "${{ inputs.n }} > 1" }',
      '4 steps[0].when',
      'Use an expression that is true or false',
    ],
    ['- { id: a, action: condition, if: [true] }', '4 steps[0].if', 'Use an expression that is true or false'],
    [
      '- { id: a, action: map, over: "${{ inputs.n }}, 2", steps: [{ id: b, action: transform }] }',
      '4 steps[0].over',
      'Use a list',
    ],
    ['- { id: a, action: sleep, until: 2030-13-45 }', '4 steps[0].until', 'Use a time'],
    ['- { id: a, action: ask, question: x, schema: { type: text } }', '4 steps[0].schema', 'Use a JSON Schema'],
    ['- { id: a, action: condition, if: "true", then: a }', '4 steps[0].then', 'cannot list itself'],
    [
      '- { id: a, action: transform, on_error: h }\n- { id: b, action: transform }\n- { id: h, action: transform, depends_on: [a, b] }',
      '6 steps[2].depends_on',
      'Let "a" depend on "b"',
    ],
  ])('%s is refused with its line and key', (steps, place, message) => {
    const problems = problemsOf(steps);
    expect(problems[0]).toContain(`${place}`);
    expect(problems.join('\n')).toContain(message);
  });

  test.each([
    '- { id: a, action: sleep, until: 2030-01-31 }',
    '- { id: a, action: sleep, until: "2030-01-31T08:00" }',
    '- { id: a, action: sleep, until: "${{ inputs.n }}-01-31" }',
    '- { id: a, action: sleep, until: inputs.n + 60 }',
    '- { id: a, action: map, over: [1, "${{ inputs.n }}"], steps: [{ id: b, action: transform }] }',
    '- { id: a, action: transform, when: false }',
    `- { id: a, action: transform, value: "\${{ {'a': {'}}': '\${{'}} }} and \${{ inputs.n }}" }`,
    '- { id: a, action: transform, undo: u }\n- { id: u, action: transform, depends_on: a }',
  ])('%s is accepted', (steps) => {
    expect(problemsOf(steps)).toEqual([]);
  });

  test('names outputs that nothing gives, and unknown keys', () => {
    const step = '- { id: a, action: transform }';
    expect(problemsOf(step, 'outputs: { x: "${{ steps.b.output }}" }\n')[0]).toContain(
      '3 outputs: There is no step "b"',
    );
    expect(problemsOf(step, 'undo_on: sometimes\n')[0]).toContain('3 undo_on');
    expect(problemsOf(step, 'limits: 4\n')[0]).toContain('Did you mean "limit"?');
    expect(problemsOf(step, 'limit: 0\n')[0]).toContain('from 1 to 100');
  });

  test('an output is visible only where its step is done', () => {
    const inner =
      '- { id: p, action: parallel, steps: [{ id: x, action: transform }] }\n' +
      '- { id: b, action: transform, depends_on: p, value: "${{ steps.x.output }}" }';
    expect(problemsOf(inner)[0]).toContain('nothing makes sure that it is done');
    const handler =
      '- { id: a, action: transform, on_error: h }\n- { id: b, action: transform }\n' +
      '- { id: h, action: transform, value: "${{ error.message }}" }\n- { id: c, action: transform, value: "${{ error.message }}" }';
    expect(problemsOf(handler)[0]).toContain('7 steps[3].value: There is no value "error"');
  });
});

test('a drawing renames steps that Mermaid takes for its own words', () => {
  const steps = ['end', 'end_', 'style'].map((id) => ({ id, action: 'transform' }));
  const compiled = compileWorkflow('x', { steps: [...steps, { id: 'a', action: 'transform', depends_on: 'end' }] }, []);
  expect(compiled.type === 'flow' && mermaidText(compiled.flow).split('\n').slice(1, 6)).toEqual([
    '  end__["end<br/>transform"]',
    '  end_["end_<br/>transform"]',
    '  style_["style<br/>transform"]',
    '  a["a<br/>transform"]',
    '  end__ --> a',
  ]);
});
