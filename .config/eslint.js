// Lint with types on: a forgotten promise or an unhandled union member in a proxy is a security fault, so both are errors.
import tseslint from 'typescript-eslint';
import prettier from 'eslint-config-prettier';

const bannedIdentifiers = ['util', 'utils', 'helper', 'helpers', 'manager'];

export default tseslint.config(
  { ignores: ['dist/**', 'node_modules/**', 'coverage/**'] },
  ...tseslint.configs.strictTypeChecked,
  prettier,
  {
    languageOptions: { parserOptions: { project: ['tsconfig.json'], tsconfigRootDir: `${import.meta.dirname}/..` } },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'separate-type-imports' }],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/no-extraneous-class': 'off',
      '@typescript-eslint/no-unsafe-class-instance-assignment': 'off',
      '@typescript-eslint/no-unnecessary-condition': ['error', { allowConstantLoopConditions: true }],
      'max-params': ['error', 4],
      'max-depth': ['error', 4],
      'max-lines-per-function': ['error', { max: 90, skipBlankLines: true, skipComments: true }],
      'max-lines': ['error', { max: 350, skipBlankLines: true, skipComments: true }],
      'no-console': 'error',
      'no-process-exit': 'error',
      'id-denylist': ['error', ...bannedIdentifiers],
      eqeqeq: 'error',
    },
  },
  {
    files: ['test/**', '.config/**'],
    rules: {
      'max-lines-per-function': 'off',
      'max-lines': ['error', { max: 600 }],
      'no-console': 'off',
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/require-await': 'off',
    },
  },
  { files: ['**/*.js', '**/*.mjs'], extends: [tseslint.configs.disableTypeChecked] },
);
