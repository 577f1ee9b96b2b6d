// The editor of a cell: Python's colours, the methods of a Model to choose from, and a mark at the line of an error.

import {autocompletion, completionKeymap} from "@codemirror/autocomplete";
import {defaultKeymap, history, historyKeymap, indentWithTab} from "@codemirror/commands";
import {python} from "@codemirror/lang-python";
import {bracketMatching, indentUnit, syntaxHighlighting} from "@codemirror/language";
import {EditorState, StateEffect, StateField} from "@codemirror/state";
import {Decoration, EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers} from "@codemirror/view";
import {classHighlighter} from "@lezer/highlight";
import {METHODS} from "site";

const OPTIONS = METHODS.map(([label, detail, info]) => ({label, detail, info, type: "method"}));
const mark = StateEffect.define();
const LINE = Decoration.line({class: "wrong", attributes: {title: "The error came from this line"}});

/** Marks a line until something is typed. */
const wrong = StateField.define({
  create: () => Decoration.none,
  update(marks, change) {
    if (change.docChanged) return Decoration.none;
    for (const {is, value} of change.effects.map((effect) => ({is: effect.is(mark), value: effect.value})))
      if (is) return value ? Decoration.set([LINE.range(change.state.doc.line(value).from)]) : Decoration.none;
    return marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});

function complete(context) {
  const word = context.matchBefore(/\bmodel\.\w*/);
  return word && {from: word.from + "model.".length, options: OPTIONS, validFor: /^\w*$/};
}

/** Makes an editor; `run()` is called on Shift+Enter, `changed()` on every change. */
export function editor({parent, doc, label, run, changed}) {
  const go = () => (run(), true);
  const keys = [{key: "Shift-Enter", run: go}, {key: "Mod-Enter", run: go}, ...completionKeymap, ...defaultKeymap];
  const extensions = [
    lineNumbers(),
    history(),
    drawSelection(),
    highlightActiveLine(),
    bracketMatching(),
    indentUnit.of("    "),
    python(),
    syntaxHighlighting(classHighlighter),
    autocompletion({override: [complete]}),
    wrong,
    // Tab indents; Escape, then Tab leaves the editor, as CodeMirror has it.
    keymap.of([...keys, ...historyKeymap, indentWithTab]),
    EditorView.contentAttributes.of({"aria-label": label}),
    EditorView.updateListener.of((update) => update.docChanged && changed()),
  ];
  const view = new EditorView({parent, state: EditorState.create({doc, extensions})});
  return {
    text: () => view.state.doc.toString(),
    set: (text) => view.dispatch({changes: {from: 0, to: view.state.doc.length, insert: text}}),
    mark: (line) => {
      if (line || view.state.field(wrong).size) view.dispatch({effects: mark.of(line && line <= view.state.doc.lines ? line : null)});
    },
    has: (element) => view.dom.contains(element),
    focus: () => view.focus(),
  };
}
