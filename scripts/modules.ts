import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseSync, type ESTree } from 'vite';

/** The parts of a source file that the checks use: its imports and the names it refers to. */
export interface Module {
  /** Relative to the root, with forward slashes. */
  readonly file: string;
  readonly isTest: boolean;
  readonly imports: readonly Import[];
  readonly starExports: readonly Line[];
  /** Top-level statements other than `export { … } from '…'`. */
  readonly ownStatements: readonly Line[];
  /** Referenced names, as `name` or `name.property`, without the names of properties and methods. */
  readonly names: readonly Name[];
  /** Names that the module imports or declares. */
  readonly bindings: ReadonlySet<string>;
  readonly syntaxErrors: readonly (Line & { readonly message: string })[];
}

export interface Line {
  readonly line: number;
}

export interface Import extends Line {
  readonly specifier: string;
  /** Erased at run time. `import { type A }` is not erased: it still loads the module. */
  readonly typeOnly: boolean;
}

/** The specifier of an `import()` whose argument is not a literal. */
export const COMPUTED = '<computed>';

export interface Name extends Line {
  readonly name: string;
}

export function readModules(root: string, folder: string): Module[] {
  return globSync(`${folder}/**/*.{ts,tsx}`, { cwd: root, exclude: ['**/node_modules', '**/dist'] })
    .map((file) => file.replaceAll(path.sep, '/'))
    .filter((file) => !file.endsWith('.d.ts'))
    .toSorted()
    .map((file) => parseModule(file, readFileSync(path.join(root, file), 'utf8')));
}

function parseModule(file: string, source: string): Module {
  const { program, errors } = parseSync(file, source, { sourceType: 'module' });
  const lineOf = lineFinder(source);
  const imports: Import[] = [];
  const names: Name[] = [];
  const bindings = new Set<string>();

  function visit(node: ESTree.Node): void {
    const line = lineOf(node.start);
    switch (node.type) {
      case 'ImportDeclaration':
        imports.push({ line, specifier: node.source.value, typeOnly: node.importKind === 'type' });
        break;
      case 'ExportAllDeclaration':
      case 'ExportNamedDeclaration':
        if (node.source) imports.push({ line, specifier: node.source.value, typeOnly: node.exportKind === 'type' });
        break;
      case 'ImportExpression':
        imports.push({ line, specifier: isText(node.source) ? node.source.value : COMPUTED, typeOnly: false });
        break;
      case 'TSImportType':
        imports.push({ line, specifier: node.source.value, typeOnly: true });
        break;
      case 'ImportSpecifier':
      case 'ImportDefaultSpecifier':
      case 'ImportNamespaceSpecifier':
        bindings.add(node.local.name);
        break;
      case 'FunctionDeclaration':
      case 'ClassDeclaration':
      case 'VariableDeclarator':
      case 'TSInterfaceDeclaration':
      case 'TSTypeAliasDeclaration':
        if (node.id?.type === 'Identifier') bindings.add(node.id.name);
        break;
      case 'MemberExpression':
        if (node.object.type !== 'Identifier') break;
        names.push({ line, name: `${node.object.name}.${propertyOf(node)}` });
        if (node.computed) visit(node.property);
        return;
      case 'Identifier':
        names.push({ line, name: node.name });
        break;
    }
    visitChildren(node, visit);
  }
  visit(program);

  return {
    file,
    isTest: /\.test\.tsx?$/.test(file),
    imports,
    names,
    bindings,
    starExports: program.body.filter((node) => node.type === 'ExportAllDeclaration').map(at),
    ownStatements: program.body.filter((node) => !isReexport(node)).map(at),
    syntaxErrors: errors.map(({ message, labels }) => ({ line: lineOf(labels[0]?.start ?? 0), message })),
  };

  function at(node: ESTree.Node): Line {
    return { line: lineOf(node.start) };
  }
}

function isReexport(node: ESTree.Node): boolean {
  if (node.type === 'ExportAllDeclaration') return true;
  if (node.type !== 'ExportNamedDeclaration' || node.declaration) return false;
  return node.source !== null || node.specifiers.length === 0;
}

function isText(node: ESTree.Node): node is ESTree.StringLiteral {
  return node.type === 'Literal' && typeof node.value === 'string';
}

function propertyOf(node: ESTree.MemberExpression): string {
  if (!node.computed && node.property.type === 'Identifier') return node.property.name;
  return isText(node.property) ? node.property.value : '?';
}

/** Skips the names of properties, which are not references. */
function visitChildren(node: ESTree.Node, visit: (child: ESTree.Node) => void): void {
  for (const field of Object.keys(node)) {
    const isPropertyName = (field === 'key' || field === 'property') && 'computed' in node && !node.computed;
    if (isPropertyName) continue;
    const value: unknown = node[field as keyof ESTree.Node];
    if (!Array.isArray(value)) {
      if (isNode(value)) visit(value);
    } else for (const child of value) if (isNode(child)) visit(child);
  }
}

function isNode(value: unknown): value is ESTree.Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

function lineFinder(source: string): (offset: number) => number {
  const starts = [0];
  for (let at = source.indexOf('\n'); at >= 0; at = source.indexOf('\n', at + 1)) starts.push(at + 1);
  // Between `from`, which starts at or before the offset, and `to`, which starts after it.
  return (offset) => {
    let [from, to] = [0, starts.length];
    while (to - from > 1) {
      const middle = (from + to) >> 1;
      if (starts[middle]! <= offset) from = middle;
      else to = middle;
    }
    return from + 1;
  };
}
