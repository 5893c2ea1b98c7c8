/**
 * Packs the public packages, as built, into `dist/packages`, and prints the lines that install them in another folder:
 * `npm run pack` builds first. `scripts/packed.ts` runs the lines that this prints.
 */
import { execFileSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';

const root = path.join(import.meta.dirname, '..');
const folder = 'dist/packages';

// Tarballs of packages that were renamed or removed.
rmSync(path.join(root, folder), { recursive: true, force: true });
mkdirSync(path.join(root, folder), { recursive: true });
const workspaces = globSync('packages/*/package.json', { cwd: root }).flatMap((file) => {
  const manifest = JSON.parse(readFileSync(path.join(root, file), 'utf8')) as { readonly private?: boolean };
  return manifest.private ? [] : ['--workspace', path.dirname(file)];
});
const files = execFileSync('npm', ['pack', '--silent', '--pack-destination', folder, ...workspaces], {
  cwd: root,
  encoding: 'utf8',
  shell: process.platform === 'win32',
});
const tarballs = files
  .trim()
  .split('\n')
  .map((file) => `"${path.join(root, folder, file)}"`);

console.log(`Packed ${tarballs.length} packages. In a new folder, start with:

npm init -y && npm pkg set type=module

Then install them there, or in the folder of your program:

npm install ${tarballs.join(' ')} zod`);
