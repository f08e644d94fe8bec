/* The innermost loops of the attack engine, for machines that have a C compiler where isthmus is installed.

   Everything here is also written in Python (engine/assembly.py, text/subwords.py, attacks/parts); both give the same
   results, bit for bit, and tests/core/test_compiled.py compares them. A function that meets a case it does not cover
   returns None, and the caller takes the Python way. Every index is checked before it is used: what is wrong is an
   error or None, never a read or a write outside an array.

   Plain C99 and the limited API of Python 3.11, so that one file serves all later versions. Arrays come by the buffer
   protocol; nothing of numpy is needed. */

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INSERT 0
#define REPLACE 1

/* ------------------------------------------------------------------ arrays */

typedef struct {
    Py_buffer view;
    int held;
    Py_ssize_t size; /* elements */
} Array;

/* An array of signed or unsigned integers of `width` bytes, one after the other; 0 and a BufferError where it is not.
   Only the sign and the width count: platforms name the same integers by different letters. */
static int
hold(Array *array, PyObject *object, Py_ssize_t width, int is_signed)
{
    if (PyObject_GetBuffer(object, &array->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return 0;
    array->held = 1;
    const char *format = array->view.format ? array->view.format : "B";
    const char *letters = is_signed ? "ilq" : "ILQ";
    if (array->view.itemsize != width || format[0] == 0 || format[1] != 0 || strchr(letters, format[0]) == NULL) {
        PyErr_SetString(PyExc_BufferError, "an array of other numbers was expected");
        return 0;
    }
    if ((uintptr_t)array->view.buf % (uintptr_t)width) {
        PyErr_SetString(PyExc_BufferError, "an array does not begin where a number may");
        return 0;
    }
    array->size = array->view.len / width;
    return 1;
}

static void
release(Array *arrays, int count)
{
    for (int index = 0; index < count; index++)
        if (arrays[index].held)
            PyBuffer_Release(&arrays[index].view);
}

/* ------------------------------------------------------------------ rows of tokens */

enum { UNITS, UNIT_SIZES, UNIT_OF, WORD_SIZES, EDITS, EDIT_SIZES, COUNTS, STARTS, LENGTHS, TOKENS, FIRST, LAST,
       TOKEN_KEYS, PLACE_KEYS, ARRAYS };

typedef struct {
    const int32_t *units, *unit_of, *edits, *tokens;
    const int64_t *unit_sizes, *word_sizes, *edit_sizes, *counts, *starts, *lengths, *first, *last;
    const uint64_t *token_keys, *place_keys;
    Py_ssize_t requests, known, stored, before, after, room, token_kinds, places;
} Round;

/* Whether a unit's tokens can be read. */
static int
readable(const Round *round, int32_t unit)
{
    if (unit < 0 || unit >= round->known)
        return 0;
    int64_t start = round->starts[unit], length = round->lengths[unit];
    return start >= 0 && length >= 0 && start <= round->stored && length <= round->stored - start;
}

/* Where the parts of a request begin in the arrays of a round. */
typedef struct {
    const int32_t *units, *unit_of, *edits;
    Py_ssize_t size, words, changes;
    int64_t count;
} Part;

/* The unit that an edit concerns; -1 where it cannot be made here. */
static Py_ssize_t
changed_unit(const Round *round, const Part *part, const int32_t *edit)
{
    if (edit[1] < 0 || edit[1] >= part->words || (edit[2] != REPLACE && edit[2] != INSERT))
        return -1;
    Py_ssize_t unit = part->unit_of[edit[1]];
    return unit >= 0 && unit < part->size && readable(round, edit[3]) ? unit : -1;
}

/* Check the edits of a request: in the order of candidates and, within these, from left to right without overlap. */
static int
in_order(const Round *round, const Part *part)
{
    Py_ssize_t last = -1, first = -1;
    int64_t candidate = -1;
    for (Py_ssize_t at = 0; at < part->changes; at++) {
        const int32_t *edit = part->edits + 4 * at;
        Py_ssize_t unit = changed_unit(round, part, edit);
        if (unit < 0 || edit[0] < candidate || edit[0] < 0 || edit[0] >= part->count)
            return 0;
        Py_ssize_t stop = unit + (edit[2] == REPLACE);
        /* Two words before the same one are put in order by whoever sorts them. */
        if (edit[0] == candidate && (unit < last || (unit == first && stop == last)))
            return 0;
        candidate = edit[0], first = unit, last = stop;
    }
    return 1;
}

/* The most tokens that the edits of one candidate take out. */
static int64_t
most_removed(const Round *round, const Part *part)
{
    int64_t most = 0, removed = 0;
    for (Py_ssize_t edit = 0; edit < part->changes; edit++) {
        const int32_t *own = part->edits + 4 * edit;
        if (edit && own[0] != own[-4])
            removed = 0;
        int32_t unit = part->units[part->unit_of[own[1]]];
        if (own[2] == REPLACE && readable(round, unit))
            removed += round->lengths[unit];
        if (removed > most)
            most = removed;
    }
    return most;
}

/* `at[u]` is where the tokens of unit u begin, for the units of which some row may hold a token: how many these are. Of
   a text of any length no more is looked at than fits into a row; -1 where a unit can't be read. */
static Py_ssize_t
lay_out(const Round *round, const Part *part, int64_t *at)
{
    int64_t enough = round->room + most_removed(round, part);
    Py_ssize_t unit = 0;
    for (at[0] = 0; unit < part->size && at[unit] < enough; unit++) {
        if (!readable(round, part->units[unit]))
            return -1;
        at[unit + 1] = at[unit] + round->lengths[part->units[unit]];
    }
    return unit;
}

/* Tokens of every row of a request, as many as there is room for. Of a long text most edits lie behind what a row
   holds: such rows are equal, and `same` tells the first of them, counted from `row`; -1 for others and for the first. */
static void
measure(const Round *round, const Part *part, const int64_t *at, Py_ssize_t seen, int64_t row, int64_t *totals,
        int64_t *same)
{
    int64_t whole = at[seen], unchanged = -1;
    Py_ssize_t edit = 0;
    for (int64_t candidate = 0; candidate < part->count; candidate++) {
        int64_t length = whole;
        int changed = 0;
        for (; edit < part->changes && part->edits[4 * edit] == candidate; edit++) {
            const int32_t *own = part->edits + 4 * edit;
            Py_ssize_t unit = part->unit_of[own[1]];
            if (unit >= seen) /* Behind all that any row holds. */
                continue;
            changed = 1;
            length += round->lengths[own[3]];
            if (own[2] == REPLACE)
                length -= at[unit + 1] - at[unit];
        }
        totals[candidate] = (length < round->room ? length : round->room) + round->before + round->after;
        same[candidate] = changed ? -1 : unchanged;
        if (!changed && unchanged < 0)
            unchanged = row + candidate;
    }
}

/* Put tokens into a row until it is full. */
static int64_t
put(int64_t *row, int64_t filled, int64_t room, const int64_t *from, int64_t count)
{
    if (count > room - filled)
        count = room - filled;
    if (count > 0)
        memcpy(row + filled, from, (size_t)count * sizeof(int64_t));
    return count > 0 ? filled + count : filled;
}

static int64_t
put_unit(const Round *round, int64_t *row, int64_t filled, int32_t unit)
{
    const int32_t *tokens = round->tokens + round->starts[unit];
    int64_t count = round->lengths[unit];
    if (count > round->room - filled)
        count = round->room - filled;
    for (int64_t index = 0; index < count; index++)
        row[filled + index] = tokens[index];
    return count > 0 ? filled + count : filled;
}

/* 64 bits that name a row; 0 where a token has no key. */
static uint64_t
key_of(const Round *round, const int64_t *row, int64_t total)
{
    uint64_t sum = 0;
    for (int64_t place = 0; place < total; place++) {
        uint64_t token = (uint64_t)row[place];
        if (token >= (uint64_t)round->token_kinds)
            return 0;
        uint64_t mixed = round->token_keys[token] * round->place_keys[place];
        sum += mixed ^ (mixed >> 29);
    }
    uint64_t key = sum * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)total;
    key ^= key >> 32;
    return key ? key : 1;
}

/* The rows of one request, each at its place; 0 where a token has no key. Rows without a change that shows share one
   place and one key. */
static int
fill(const Round *round, const Part *part, const int64_t *at, Py_ssize_t seen, const int64_t *base,
     const int64_t *totals, int64_t *const *places, uint64_t *keys)
{
    Py_ssize_t edit = 0;
    uint64_t unchanged = 0;
    for (int64_t candidate = 0; candidate < part->count; candidate++) {
        int64_t *row = places[candidate], *content = row + round->before;
        int64_t filled = 0, from = 0;
        int changed = 0;
        for (Py_ssize_t next = edit; next < part->changes && part->edits[4 * next] == candidate; next++)
            changed |= part->unit_of[part->edits[4 * next + 1]] < seen;
        if (!changed && unchanged) {
            while (edit < part->changes && part->edits[4 * edit] == candidate)
                edit++;
            keys[candidate] = unchanged;
            continue;
        }
        memcpy(row, round->first, (size_t)round->before * sizeof(int64_t));
        for (; edit < part->changes && part->edits[4 * edit] == candidate; edit++) {
            const int32_t *own = part->edits + 4 * edit;
            Py_ssize_t unit = part->unit_of[own[1]];
            if (unit >= seen)
                continue;
            filled = put(content, filled, round->room, base + from, at[unit] - from);
            filled = put_unit(round, content, filled, own[3]);
            from = at[unit + (own[2] == REPLACE)];
        }
        filled = put(content, filled, round->room, base + from, at[seen] - from);
        memcpy(content + filled, round->last, (size_t)round->after * sizeof(int64_t));
        keys[candidate] = key_of(round, row, totals[candidate]);
        if (!keys[candidate])
            return 0;
        if (!changed)
            unchanged = keys[candidate];
    }
    return 1;
}

/* Where the tokens of each row begin if rows lie in the order of their lengths, equal ones as they come, and those that
   are the `same` as an earlier one lie where that does; how many tokens this is, -1 where memory is short. */
static int64_t
order_rows(const int64_t *totals, const int64_t *same, int64_t rows, int64_t longest, int64_t *begins)
{
    int64_t *next = PyMem_Calloc((size_t)longest + 2, sizeof(int64_t));
    int64_t *order = PyMem_Malloc(((size_t)rows + 1) * sizeof(int64_t));
    if (next == NULL || order == NULL) {
        PyMem_Free(next);
        PyMem_Free(order);
        return -1;
    }
    for (int64_t row = 0; row < rows; row++)
        next[totals[row] + 1]++;
    for (int64_t length = 0; length <= longest; length++)
        next[length + 1] += next[length];
    for (int64_t row = 0; row < rows; row++)
        order[next[totals[row]]++] = row;
    int64_t begin = 0;
    for (int64_t place = 0; place < rows; place++) {
        int64_t row = order[place];
        begins[row] = same[row] < 0 ? begin : begins[same[row]];
        begin += same[row] < 0 ? totals[row] : 0;
    }
    PyMem_Free(next);
    PyMem_Free(order);
    return begin;
}

/* Whether the parts add up to the arrays they lie in; the rows and the most units of a text. */
static int
adds_up(const Round *round, const Array *held, int64_t *rows, Py_ssize_t *longest)
{
    Py_ssize_t units = held[UNITS].size, words = held[UNIT_OF].size, edits = held[EDITS].size / 4;
    *rows = 0, *longest = 0;
    for (Py_ssize_t index = 0; index < round->requests; index++) {
        int64_t own[4] = {round->unit_sizes[index], round->word_sizes[index], round->edit_sizes[index],
                          round->counts[index]};
        if (own[0] < 0 || own[1] < 0 || own[2] < 0 || own[3] < 0 || own[0] > units || own[1] > words ||
            own[2] > edits || own[3] > (INT64_C(1) << 40) - *rows)
            return 0;
        units -= own[0], words -= own[1], edits -= own[2], *rows += own[3];
        if (own[0] > *longest)
            *longest = own[0];
    }
    return units == 0 && words == 0 && edits == 0;
}

/* Every request in turn: its tokens laid out in `base`, `at` where each unit begins, then `measure` or `fill`. */
static int
each_request(const Round *round, Py_ssize_t longest, int64_t *totals, int64_t *same, int64_t *const *places,
             uint64_t *keys)
{
    int64_t *at = PyMem_Malloc(((size_t)longest + 1) * sizeof(int64_t)), *base = NULL;
    int64_t capacity = 0, row = 0;
    Py_ssize_t units = 0, words = 0, edits = 0;
    int good = at != NULL;
    for (Py_ssize_t index = 0; good && index < round->requests; index++) {
        Part part = {round->units + units, round->unit_of + words, round->edits + 4 * edits,
                     round->unit_sizes[index], round->word_sizes[index], round->edit_sizes[index],
                     round->counts[index]};
        good = places != NULL || in_order(round, &part);
        Py_ssize_t seen = good ? lay_out(round, &part, at) : -1;
        good = seen >= 0;
        if (good && places == NULL) {
            measure(round, &part, at, seen, row, totals + row, same + row);
        } else if (good) {
            if (at[seen] > capacity) {
                PyMem_Free(base);
                capacity = 2 * at[seen];
                base = PyMem_Malloc((size_t)capacity * sizeof(int64_t));
                good = base != NULL;
            }
            for (Py_ssize_t unit = 0; good && unit < seen; unit++) {
                const int32_t *tokens = round->tokens + round->starts[part.units[unit]];
                for (int64_t token = 0; token < round->lengths[part.units[unit]]; token++)
                    base[at[unit] + token] = tokens[token];
            }
            good = good && fill(round, &part, at, seen, base, totals + row, places + row, keys + row);
        }
        units += part.size, words += part.words, edits += part.changes, row += part.count;
    }
    PyMem_Free(at);
    PyMem_Free(base);
    return good;
}

static PyObject *
made_rows(const Round *round, int64_t rows, Py_ssize_t longest)
{
    PyObject *answer = NULL, *parts[4] = {NULL, NULL, NULL, NULL};
    int64_t **places = NULL, *same = NULL, tokens = 0, most = 0;
    Py_ssize_t bytes = (Py_ssize_t)rows * (Py_ssize_t)sizeof(int64_t);
    int64_t *totals, *begins, *ids;
    if (!(parts[0] = PyByteArray_FromStringAndSize(NULL, bytes)) ||
        !(parts[1] = PyByteArray_FromStringAndSize(NULL, bytes)) ||
        !(parts[3] = PyByteArray_FromStringAndSize(NULL, bytes)))
        goto done;
    totals = (int64_t *)(void *)PyByteArray_AsString(parts[0]);
    begins = (int64_t *)(void *)PyByteArray_AsString(parts[1]);
    same = PyMem_Malloc(((size_t)rows + 1) * sizeof(int64_t));
    places = PyMem_Malloc(((size_t)rows + 1) * sizeof(int64_t *));
    if (same == NULL || places == NULL || !each_request(round, longest, totals, same, NULL, NULL))
        goto other;
    for (int64_t row = 0; row < rows; row++)
        if (totals[row] > most)
            most = totals[row];
    if (most > round->places || (tokens = order_rows(totals, same, rows, most, begins)) < 0 ||
        tokens > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(int64_t))
        goto other;
    if (!(parts[2] = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)tokens * (Py_ssize_t)sizeof(int64_t))))
        goto done;
    ids = (int64_t *)(void *)PyByteArray_AsString(parts[2]);
    for (int64_t row = 0; row < rows; row++)
        places[row] = ids + begins[row];
    if (!each_request(round, longest, totals, NULL, places, (uint64_t *)(void *)PyByteArray_AsString(parts[3])))
        goto other;
    answer = PyTuple_Pack(4, parts[0], parts[1], parts[2], parts[3]);
    goto done;
other:
    if (!PyErr_Occurred()) {
        Py_INCREF(Py_None);
        answer = Py_None;
    }
done:
    PyMem_Free(same);
    PyMem_Free(places);
    for (int index = 0; index < 4; index++)
        Py_XDECREF(parts[index]);
    return answer;
}

static PyObject *
rows(PyObject *module, PyObject *args)
{
    (void)module;
    static const int wide[ARRAYS] = {4, 8, 4, 8, 4, 8, 8, 8, 8, 4, 8, 8, 8, 8};
    PyObject *given[ARRAYS], *answer = NULL;
    Array held[ARRAYS];
    Py_ssize_t room, longest;
    int64_t count;
    memset(held, 0, sizeof(held));
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOOOn:rows", &given[0], &given[1], &given[2], &given[3], &given[4],
                          &given[5], &given[6], &given[7], &given[8], &given[9], &given[10], &given[11], &given[12],
                          &given[13], &room))
        return NULL;
    for (int index = 0; index < ARRAYS; index++)
        if (!hold(&held[index], given[index], wide[index], index < TOKEN_KEYS))
            goto done;
    Round round = {held[UNITS].view.buf, held[UNIT_OF].view.buf, held[EDITS].view.buf, held[TOKENS].view.buf,
                   held[UNIT_SIZES].view.buf, held[WORD_SIZES].view.buf, held[EDIT_SIZES].view.buf,
                   held[COUNTS].view.buf, held[STARTS].view.buf, held[LENGTHS].view.buf, held[FIRST].view.buf,
                   held[LAST].view.buf, held[TOKEN_KEYS].view.buf, held[PLACE_KEYS].view.buf, held[COUNTS].size,
                   held[STARTS].size, held[TOKENS].size, held[FIRST].size, held[LAST].size, room,
                   held[TOKEN_KEYS].size, held[PLACE_KEYS].size};
    if (held[UNIT_SIZES].size != round.requests || held[WORD_SIZES].size != round.requests ||
        held[EDIT_SIZES].size != round.requests || held[LENGTHS].size != round.known || held[EDITS].size % 4 ||
        room < 0 || room > (Py_ssize_t)1 << 32 || !adds_up(&round, held, &count, &longest)) {
        PyErr_SetString(PyExc_ValueError, "the arrays of a round do not fit together");
        goto done;
    }
    answer = made_rows(&round, count, longest);
done:
    release(held, ARRAYS);
    return answer;
}

/* Some rows of a round as one matrix, padded on the right: ids, and a mask of the same shape, or None where every row
   fills its width; int64 [rows, width] each. */
static PyObject *
padded(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *given[4], *ids = NULL, *mask = NULL, *answer = NULL;
    Py_ssize_t width;
    long long pad;
    int is_even = 1;
    Array held[4];
    memset(held, 0, sizeof(held));
    if (!PyArg_ParseTuple(args, "OOOOnL:padded", &given[0], &given[1], &given[2], &given[3], &width, &pad))
        return NULL;
    for (int index = 0; index < 4; index++)
        if (!hold(&held[index], given[index], 8, 1))
            goto done;
    const int64_t *flat = held[0].view.buf, *begins = held[1].view.buf, *lengths = held[2].view.buf;
    const int64_t *chosen = held[3].view.buf;
    Py_ssize_t rows = held[3].size;
    int good = width >= 0 && held[1].size == held[2].size &&
               (width == 0 || rows <= PY_SSIZE_T_MAX / width / (Py_ssize_t)sizeof(int64_t));
    for (Py_ssize_t row = 0; good && row < rows; row++) {
        int64_t own = chosen[row];
        good = own >= 0 && own < held[1].size && begins[own] >= 0 && lengths[own] >= 0 && lengths[own] <= width &&
               begins[own] <= held[0].size && lengths[own] <= held[0].size - begins[own];
        is_even = is_even && good && lengths[own] == width;
    }
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "the rows do not lie within their tokens, or not within the width");
        goto done;
    }
    Py_ssize_t bytes = rows * width * (Py_ssize_t)sizeof(int64_t);
    if (!(ids = PyByteArray_FromStringAndSize(NULL, bytes)) ||
        (!is_even && !(mask = PyByteArray_FromStringAndSize(NULL, bytes))))
        goto done;
    int64_t *to = (int64_t *)(void *)PyByteArray_AsString(ids);
    int64_t *is_token = mask == NULL ? NULL : (int64_t *)(void *)PyByteArray_AsString(mask);
    for (Py_ssize_t row = 0; row < rows; row++, to += width) {
        Py_ssize_t length = (Py_ssize_t)lengths[chosen[row]];
        memcpy(to, flat + begins[chosen[row]], (size_t)length * sizeof(int64_t));
        for (Py_ssize_t at = length; at < width; at++)
            to[at] = pad;
        if (is_token == NULL)
            continue;
        for (Py_ssize_t at = 0; at < width; at++)
            is_token[at] = at < length;
        is_token += width;
    }
    answer = PyTuple_Pack(2, ids, mask == NULL ? Py_None : mask);
done:
    Py_XDECREF(ids);
    Py_XDECREF(mask);
    release(held, 4);
    return answer;
}

/* ------------------------------------------------------------------ sub-words */

/* The pieces of a WordPiece vocabulary, by their bytes. Words are looked up piece by piece, the longest first, so the
   hash of every beginning of a word is needed: it is made byte by byte. */

#define SEED UINT64_C(0xCBF29CE484222325)
#define STEP(hash, byte) (((hash) ^ (unsigned char)(byte)) * UINT64_C(0x100000001B3))
#define CAPSULE "isthmus.core._compiled.pieces"

typedef struct {
    uint64_t hash;
    int32_t at, size, id; /* id -1: empty */
} Entry;

typedef struct {
    Entry *entries;
    char *bytes;
    size_t mask;
    Py_ssize_t longest, most;
    int64_t unknown;
    uint64_t inside; /* the hash of what marks a piece inside a word */
    Py_ssize_t mark;
} Pieces;

static void
free_pieces(PyObject *capsule)
{
    Pieces *pieces = PyCapsule_GetPointer(capsule, CAPSULE);
    if (pieces != NULL) {
        PyMem_Free(pieces->entries);
        PyMem_Free(pieces->bytes);
        PyMem_Free(pieces);
    }
}

static int
add_piece(Pieces *pieces, const char *name, Py_ssize_t size, int32_t id, Py_ssize_t at)
{
    uint64_t hash = SEED;
    for (Py_ssize_t index = 0; index < size; index++)
        hash = STEP(hash, name[index]);
    memcpy(pieces->bytes + at, name, (size_t)size);
    size_t place = hash & pieces->mask;
    while (pieces->entries[place].id >= 0)
        place = (place + 1) & pieces->mask;
    Entry entry = {hash, (int32_t)at, (int32_t)size, id};
    pieces->entries[place] = entry;
    if (size > pieces->longest)
        pieces->longest = size;
    return 1;
}

/* The id of mark + text, or -1. */
static int32_t
find_piece(const Pieces *pieces, uint64_t hash, const char *mark, Py_ssize_t marked, const char *text, Py_ssize_t size)
{
    for (size_t place = hash & pieces->mask; pieces->entries[place].id >= 0; place = (place + 1) & pieces->mask) {
        const Entry *entry = &pieces->entries[place];
        if (entry->hash == hash && entry->size == marked + size &&
            !memcmp(pieces->bytes + entry->at, mark, (size_t)marked) &&
            !memcmp(pieces->bytes + entry->at + marked, text, (size_t)size))
            return entry->id;
    }
    return -1;
}

static PyObject *
piece_table(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *vocabulary, *name, *number, *capsule = NULL;
    const char *mark;
    Py_ssize_t marked, most, at = 0, bytes = 0, size;
    long long unknown;
    if (!PyArg_ParseTuple(args, "O!s#Ln:piece_table", &PyDict_Type, &vocabulary, &mark, &marked, &unknown, &most))
        return NULL;
    while (PyDict_Next(vocabulary, &at, &name, &number)) {
        if (!PyUnicode_Check(name) || PyUnicode_AsUTF8AndSize(name, &size) == NULL) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "pieces are strings");
            return NULL;
        }
        bytes += size;
        long id = PyLong_AsLong(number);
        if (id == -1 && PyErr_Occurred())
            return NULL;
        if (id < 0 || id > INT32_MAX || bytes > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a piece has a number from 0 to 2^31 - 1");
            return NULL;
        }
    }
    Pieces *pieces = PyMem_Calloc(1, sizeof(Pieces));
    size_t slots = 16;
    while (slots < 2 * (size_t)PyDict_Size(vocabulary) + 2)
        slots *= 2;
    if (pieces != NULL) {
        pieces->entries = PyMem_Malloc(slots * sizeof(Entry));
        pieces->bytes = PyMem_Malloc((size_t)bytes + (size_t)marked + 1);
    }
    if (pieces == NULL || pieces->entries == NULL || pieces->bytes == NULL) {
        if (pieces != NULL) {
            PyMem_Free(pieces->entries);
            PyMem_Free(pieces->bytes);
            PyMem_Free(pieces);
        }
        return PyErr_NoMemory();
    }
    for (size_t place = 0; place < slots; place++)
        pieces->entries[place].id = -1;
    pieces->mask = slots - 1, pieces->most = most, pieces->unknown = unknown, pieces->mark = marked;
    memcpy(pieces->bytes, mark, (size_t)marked);
    pieces->inside = SEED;
    for (Py_ssize_t index = 0; index < marked; index++)
        pieces->inside = STEP(pieces->inside, mark[index]);
    Py_ssize_t filled = marked;
    at = 0;
    while (PyDict_Next(vocabulary, &at, &name, &number)) {
        const char *text = PyUnicode_AsUTF8AndSize(name, &size);
        add_piece(pieces, text, size, (int32_t)PyLong_AsLong(number), filled);
        filled += size;
    }
    capsule = PyCapsule_New(pieces, CAPSULE, free_pieces);
    if (capsule == NULL) {
        PyMem_Free(pieces->entries);
        PyMem_Free(pieces->bytes);
        PyMem_Free(pieces);
    }
    return capsule;
}

#define LONGEST_WORD 256

/* Sub-words of a plain word into `out` (as many as it has letters at most): how many; -1 where it is not plain. */
static Py_ssize_t
split_word(const Pieces *pieces, const char *word, Py_ssize_t size, int lower, int64_t *out)
{
    char text[LONGEST_WORD];
    if (size < 1 || size > LONGEST_WORD)
        return -1;
    for (Py_ssize_t index = 0; index < size; index++) {
        char letter = word[index];
        if (letter >= 'A' && letter <= 'Z')
            letter = lower ? (char)(letter + ('a' - 'A')) : letter;
        else if (!((letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9')))
            return -1;
        text[index] = letter;
    }
    if (size > pieces->most) {
        out[0] = pieces->unknown;
        return 1;
    }
    Py_ssize_t found = 0, start = 0;
    uint64_t hashes[LONGEST_WORD + 1];
    while (start < size) {
        Py_ssize_t marked = start ? pieces->mark : 0;
        Py_ssize_t reach = pieces->longest - marked < size - start ? pieces->longest - marked : size - start;
        hashes[0] = start ? pieces->inside : SEED;
        for (Py_ssize_t index = 0; index < reach; index++)
            hashes[index + 1] = STEP(hashes[index], text[start + index]);
        int32_t id = -1;
        Py_ssize_t length = reach;
        for (; length > 0; length--) {
            id = find_piece(pieces, hashes[length], pieces->bytes, marked, text + start, length);
            if (id >= 0)
                break;
        }
        if (id < 0) {
            out[0] = pieces->unknown;
            return 1;
        }
        out[found++] = id;
        start += length;
    }
    return found;
}

static PyObject *
split_words(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *capsule, *strings, *answer = NULL, *counts = NULL, *ids = NULL;
    int lower;
    if (!PyArg_ParseTuple(args, "OO!p:split_words", &capsule, &PyList_Type, &strings, &lower))
        return NULL;
    const Pieces *pieces = PyCapsule_GetPointer(capsule, CAPSULE);
    if (pieces == NULL)
        return NULL;
    Py_ssize_t words = PyList_Size(strings), capacity = 4 * words + LONGEST_WORD, used = 0, size;
    int64_t *flat = PyMem_Malloc((size_t)capacity * sizeof(int64_t));
    if (!(counts = PyByteArray_FromStringAndSize(NULL, words * (Py_ssize_t)sizeof(int64_t))) || flat == NULL) {
        if (flat == NULL)
            PyErr_NoMemory();
        goto done;
    }
    int64_t *count = (int64_t *)(void *)PyByteArray_AsString(counts);
    for (Py_ssize_t index = 0; index < words; index++) {
        PyObject *string = PyList_GetItem(strings, index); /* borrowed */
        if (string == NULL || !PyUnicode_Check(string)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "words are strings");
            goto done;
        }
        const char *text = PyUnicode_AsUTF8AndSize(string, &size);
        if (text == NULL) {
            PyErr_Clear(); /* Half of a surrogate pair: the tokenizer will say what it makes of it. */
            count[index] = -1;
            continue;
        }
        if (capacity - used < LONGEST_WORD) {
            capacity = 2 * capacity;
            int64_t *more = PyMem_Realloc(flat, (size_t)capacity * sizeof(int64_t));
            if (more == NULL) {
                PyErr_NoMemory();
                goto done;
            }
            flat = more;
        }
        count[index] = split_word(pieces, text, size, lower, flat + used);
        if (count[index] > 0)
            used += count[index];
    }
    ids = PyByteArray_FromStringAndSize((const char *)(void *)flat, used * (Py_ssize_t)sizeof(int64_t));
    if (ids != NULL)
        answer = PyTuple_Pack(2, counts, ids);
done:
    PyMem_Free(flat);
    Py_XDECREF(counts);
    Py_XDECREF(ids);
    return answer;
}

/* ------------------------------------------------------------------ the edits of one candidate */

static PyObject *
edits_of(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *given, *answer = NULL;
    Py_ssize_t wanted;
    Array edits;
    memset(&edits, 0, sizeof(edits));
    if (!PyArg_ParseTuple(args, "On:edits_of", &given, &wanted))
        return NULL;
    if (!hold(&edits, given, 4, 1) || edits.size % 4) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "an edit has four numbers");
        goto done;
    }
    const int32_t *numbers = edits.view.buf;
    Py_ssize_t low = 0, high = edits.size / 4, end = edits.size / 4;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (numbers[4 * middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (!(answer = PyList_New(0)))
        goto done;
    for (; low < end && numbers[4 * low] == wanted; low++) {
        PyObject *one = Py_BuildValue("(iii)", numbers[4 * low + 1], numbers[4 * low + 2], numbers[4 * low + 3]);
        int failed = one == NULL || PyList_Append(answer, one) < 0;
        Py_XDECREF(one);
        if (failed) {
            Py_DECREF(answer);
            answer = NULL;
            goto done;
        }
    }
done:
    release(&edits, 1);
    return answer;
}

/* ------------------------------------------------------------------ proposing words */

/* The number of a string in `table`, which numbers `strings`; one that is new gets the next. -1 and an error where it
   has none. */
static int32_t
number_of(PyObject *string, PyObject *table, PyObject *strings)
{
    if (!PyUnicode_CheckExact(string)) { /* Others may run Python code when they are compared. */
        PyErr_SetString(PyExc_TypeError, "words are strings");
        return -1;
    }
    PyObject *number = PyDict_GetItemWithError(table, string); /* borrowed */
    Py_XINCREF(number);
    if (number == NULL && !PyErr_Occurred()) {
        number = PyLong_FromSsize_t(PyList_Size(strings));
        if (number != NULL && (PyDict_SetItem(table, string, number) < 0 || PyList_Append(strings, string) < 0)) {
            Py_DECREF(number);
            number = NULL;
        }
    }
    if (number == NULL)
        return -1;
    long id = PyLong_AsLong(number);
    Py_DECREF(number);
    if (id == -1 && PyErr_Occurred())
        return -1;
    if (id < 0 || id > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a word has a number from 0 to 2^31 - 1");
        return -1;
    }
    return (int32_t)id;
}

/* Edits that put each of some words at a position, one candidate each: int32 [words, 4]. `table` numbers `strings`; one
   that is new gets the next number. */
static PyObject *
replacing(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *words, *table, *strings, *word, *edits;
    int position;
    if (!PyArg_ParseTuple(args, "iO!O!O!:replacing", &position, &PyList_Type, &words, &PyDict_Type, &table,
                          &PyList_Type, &strings))
        return NULL;
    Py_ssize_t count = PyList_Size(words);
    if (count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "so many candidates cannot be numbered");
        return NULL;
    }
    if (!(edits = PyByteArray_FromStringAndSize(NULL, 4 * count * (Py_ssize_t)sizeof(int32_t))))
        return NULL;
    for (Py_ssize_t index = 0; index < count; index++) {
        if (!(word = PyList_GetItem(words, index))) /* borrowed; an error beyond the end */
            goto failed;
        Py_INCREF(word);
        int32_t id = number_of(word, table, strings);
        Py_DECREF(word);
        if (id < 0)
            goto failed;
        int32_t *edit = (int32_t *)(void *)PyByteArray_AsString(edits) + 4 * index;
        edit[0] = (int32_t)index, edit[1] = position, edit[2] = REPLACE, edit[3] = id;
    }
    return edits;
failed:
    Py_DECREF(edits);
    return NULL;
}

/* Positions of the words that are not among `frozen`, where `free` (bytes, one a word) allows them: int32 [positions]. */
static PyObject *
positions(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *given, *strings, *frozen, *may, *answer = NULL;
    Array ids;
    Py_buffer view;
    int held = 0;
    int32_t *found = NULL;
    memset(&ids, 0, sizeof(ids));
    if (!PyArg_ParseTuple(args, "OO!OO:positions", &given, &PyList_Type, &strings, &frozen, &may))
        return NULL;
    if (!PyAnySet_Check(frozen)) {
        PyErr_SetString(PyExc_TypeError, "frozen words are a set");
        return NULL;
    }
    if (!hold(&ids, given, 4, 1) || PyObject_GetBuffer(may, &view, PyBUF_C_CONTIGUOUS) < 0)
        goto done;
    held = 1;
    if (view.len != ids.size || view.itemsize != 1) {
        PyErr_SetString(PyExc_ValueError, "one byte a word says whether it may be edited");
        goto done;
    }
    if (!(found = PyMem_Malloc(((size_t)ids.size + 1) * sizeof(int32_t)))) {
        PyErr_NoMemory();
        goto done;
    }
    Py_ssize_t count = 0;
    for (Py_ssize_t at = 0; at < ids.size; at++) {
        if (!((const char *)view.buf)[at])
            continue;
        int32_t id = ((const int32_t *)ids.view.buf)[at];
        PyObject *string = id < 0 ? NULL : PyList_GetItem(strings, id); /* borrowed; an error beyond the end */
        if (string == NULL) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_IndexError, "a word has a number from 0");
            goto done;
        }
        Py_INCREF(string);
        int is_frozen = PySet_Contains(frozen, string);
        Py_DECREF(string);
        if (is_frozen < 0)
            goto done;
        if (!is_frozen)
            found[count++] = (int32_t)at;
    }
    answer = PyByteArray_FromStringAndSize((const char *)(void *)found, count * (Py_ssize_t)sizeof(int32_t));
done:
    PyMem_Free(found);
    if (held)
        PyBuffer_Release(&view);
    release(&ids, 1);
    return answer;
}

/* ------------------------------------------------------------------ judging scores

   Progress towards another class than the true one is 1 - p(true class), in 32 bits as numpy computes it. */

typedef struct {
    Py_buffer view;
    const float *scores;
    Py_ssize_t rows, classes;
} Scores;

/* Scores [rows, classes] of 32 bits; 0 where these are none, and no error: Python judges others. */
static int
hold_scores(Scores *held, PyObject *object, Py_ssize_t column)
{
    if (PyObject_GetBuffer(object, &held->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return 0;
    }
    const Py_buffer *view = &held->view;
    if (view->ndim == 2 && view->itemsize == 4 && view->format != NULL && !strcmp(view->format, "f") && column >= 0 &&
        column < view->shape[1] && (uintptr_t)view->buf % sizeof(float) == 0) {
        held->scores = view->buf, held->rows = view->shape[0], held->classes = view->shape[1];
        return 1;
    }
    PyBuffer_Release(&held->view);
    return 0;
}

/* The first row that is the furthest from a class, and how far it is; None where a score is none, or there is no row. */
static PyObject *
furthest(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *given;
    Py_ssize_t column, best = -1;
    Scores held;
    float most = 0;
    if (!PyArg_ParseTuple(args, "On:furthest", &given, &column))
        return NULL;
    if (hold_scores(&held, given, column)) {
        for (Py_ssize_t row = 0; row < held.rows; row++) {
            volatile float progress = 1.0f - held.scores[row * held.classes + column];
            if (progress != progress) {
                best = -1;
                break;
            }
            if (best < 0 || progress > most)
                best = row, most = progress;
        }
        PyBuffer_Release(&held.view);
    }
    if (best >= 0)
        return Py_BuildValue("(nd)", best, (double)most);
    Py_INCREF(Py_None);
    return Py_None;
}

typedef struct {
    float progress;
    int32_t position;
    Py_ssize_t row;
} Ranked;

static int
before(const void *one, const void *other)
{
    const Ranked *a = one, *b = other;
    if (a->progress != b->progress)
        return a->progress > b->progress ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

/* Positions, those first whose row of scores is the furthest from a class, and equal ones as they come; None where there
   is not one score for each of them. */
static PyObject *
ranked(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *given, *places, *answer = NULL;
    Py_ssize_t column;
    Array positions;
    Scores held;
    Ranked *order = NULL;
    memset(&positions, 0, sizeof(positions));
    if (!PyArg_ParseTuple(args, "OOn:ranked", &places, &given, &column) || !hold(&positions, places, 4, 1))
        goto done;
    Py_ssize_t count = positions.size;
    int good = hold_scores(&held, given, column);
    if (good) {
        good = held.rows == count;
        if (good && !(order = PyMem_Malloc(((size_t)count + 1) * sizeof(Ranked)))) {
            PyBuffer_Release(&held.view);
            PyErr_NoMemory();
            goto done;
        }
        for (Py_ssize_t row = 0; good && row < count; row++) {
            volatile float progress = 1.0f - held.scores[row * held.classes + column];
            order[row].progress = progress, order[row].row = row;
            order[row].position = ((const int32_t *)positions.view.buf)[row];
            good = progress == progress;
        }
        PyBuffer_Release(&held.view);
    }
    if (!good) {
        Py_INCREF(Py_None);
        answer = Py_None;
        goto done;
    }
    qsort(order, (size_t)count, sizeof(Ranked), before);
    if (!(answer = PyList_New(count)))
        goto done;
    for (Py_ssize_t row = 0; row < count; row++) {
        PyObject *number = PyLong_FromLong(order[row].position);
        if (number == NULL || PyList_SetItem(answer, row, number) < 0) {
            Py_DECREF(answer);
            answer = NULL;
            break;
        }
    }
done:
    PyMem_Free(order);
    release(&positions, 1);
    return answer;
}

/* A number below `below`, from a stream of numbers in [0, 1); -1 and an error where the stream fails. */
static Py_ssize_t
drawn(PyObject *random, Py_ssize_t below)
{
    PyObject *number = PyObject_CallNoArgs(random);
    if (number == NULL)
        return -1;
    double value = PyFloat_AsDouble(number);
    Py_DECREF(number);
    if (value == -1.0 && PyErr_Occurred())
        return -1;
    if (!(value >= 0.0 && value < 1.0)) {
        PyErr_SetString(PyExc_ValueError, "a stream of randomness gives numbers from 0 to 1");
        return -1;
    }
    Py_ssize_t at = (Py_ssize_t)(value * (double)below);
    return at < below ? at : below - 1;
}

#define LETTERS 52
#define MOST_LETTERS 64

/* The letters of a word that can be misspelt here, 2 to 63 of ASCII, and how many; NULL for any other, and no error. */
static const char *
letters_of(PyObject *word, Py_ssize_t *length)
{
    Py_ssize_t size;
    *length = PyUnicode_GetLength(word);
    const char *text = *length < 2 || *length >= MOST_LETTERS ? NULL : PyUnicode_AsUTF8AndSize(word, &size);
    if (text == NULL || size != *length) {
        PyErr_Clear();
        return NULL;
    }
    return text;
}

/* One of the four edits of attacks/parts/characters.py into `made`: two letters swapped (kind 0), one replaced (1), left
   out (2), put in (3). How many letters there are then; -1 and an error where the stream fails. */
static Py_ssize_t
misspell(int kind, const char *text, Py_ssize_t length, PyObject *random, char *made)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    Py_ssize_t at = drawn(random, kind == 0 ? length - 1 : length), letter = 0;
    if (at >= 0 && (kind == 1 || kind == 3))
        letter = drawn(random, LETTERS);
    if (at < 0 || letter < 0)
        return -1;
    memcpy(made, text, (size_t)length);
    if (kind == 0) {
        made[at] = text[at + 1], made[at + 1] = text[at];
        return length;
    }
    if (kind == 2) {
        memcpy(made + at, text + at + 1, (size_t)(length - at - 1));
        return length - 1;
    }
    made[at] = letters[letter];
    if (kind == 1)
        return length;
    memcpy(made + at + 1, text + at, (size_t)(length - at));
    return length + 1;
}

/* All four, drawn in that order; None for a word that is not of 2 to 63 ASCII characters. */
static PyObject *
misspelt(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *word, *random, *answer;
    Py_ssize_t length;
    char made[MOST_LETTERS + 1];
    if (!PyArg_ParseTuple(args, "UO:misspelt", &word, &random))
        return NULL;
    const char *text = letters_of(word, &length);
    if (text == NULL) {
        Py_INCREF(Py_None);
        return Py_None;
    }
    if (!(answer = PyList_New(0)))
        return NULL;
    for (int kind = 0; kind < 4; kind++) {
        Py_ssize_t size = misspell(kind, text, length, random, made);
        PyObject *one = size < 0 ? NULL : PyUnicode_DecodeASCII(made, size, NULL);
        int failed = one == NULL || PyList_Append(answer, one) < 0;
        Py_XDECREF(one);
        if (failed) {
            Py_DECREF(answer);
            return NULL;
        }
    }
    return answer;
}

/* The misspellings of the word at a position as edits, one candidate each: int32 [words, 4]. Of equal ones the first
   counts, and the word itself is none. None where `misspelt` gives None. */
static PyObject *
misspellings(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *given, *table, *strings, *random, *word, *answer = NULL;
    Py_ssize_t position, length, sizes[4];
    char made[4][MOST_LETTERS + 1];
    int32_t edits[4][4], count = 0;
    Array ids;
    memset(&ids, 0, sizeof(ids));
    if (!PyArg_ParseTuple(args, "OnO!O!O:misspellings", &given, &position, &PyDict_Type, &table, &PyList_Type, &strings,
                          &random))
        return NULL;
    if (!hold(&ids, given, 4, 1))
        goto done;
    if (position < 0 || position >= ids.size || position > INT32_MAX) {
        PyErr_SetString(PyExc_IndexError, "there is no word at this position");
        goto done;
    }
    int32_t id = ((const int32_t *)ids.view.buf)[position];
    if (id < 0 || !(word = PyList_GetItem(strings, id))) { /* borrowed, and the list keeps it: it only grows */
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_IndexError, "a word has a number from 0");
        goto done;
    }
    Py_INCREF(word);
    const char *text = PyUnicode_Check(word) ? letters_of(word, &length) : NULL;
    if (text == NULL) {
        Py_INCREF(Py_None);
        answer = Py_None;
    }
    for (int kind = 0; text != NULL && kind < 4; kind++) {
        char *own = made[count];
        if ((sizes[count] = misspell(kind, text, length, random, own)) < 0)
            goto let_go;
        int known = sizes[count] == length && !memcmp(own, text, (size_t)length);
        for (int32_t other = 0; other < count; other++)
            known = known || (sizes[other] == sizes[count] && !memcmp(made[other], own, (size_t)sizes[count]));
        count += !known;
    }
    for (int32_t index = 0; text != NULL && index < count; index++) {
        PyObject *one = PyUnicode_DecodeASCII(made[index], sizes[index], NULL);
        int32_t number = one == NULL ? -1 : number_of(one, table, strings);
        Py_XDECREF(one);
        if (number < 0)
            goto let_go;
        edits[index][0] = index, edits[index][1] = (int32_t)position;
        edits[index][2] = REPLACE, edits[index][3] = number;
    }
    if (text != NULL)
        answer = PyByteArray_FromStringAndSize((const char *)(void *)edits, count * (Py_ssize_t)sizeof(edits[0]));
let_go:
    Py_DECREF(word);
done:
    release(&ids, 1);
    return answer;
}

/* ------------------------------------------------------------------ texts */

static int
is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Where a word that begins at `at` ends: letters and digits, and marks inside a word between them (text/words.py). */
static Py_ssize_t
end_of_word(const char *text, Py_ssize_t at, Py_ssize_t size)
{
    Py_ssize_t end = at;
    for (;;) {
        while (at < size && is_alphanumeric(text[at]))
            at++;
        end = at;
        while (at < size && (text[at] == '_' || text[at] == '\'' || text[at] == '-' || text[at] == '*' || text[at] == '@'))
            at++;
        if (at == end || at == size || !is_alphanumeric(text[at]))
            return end;
    }
}

/* Append text[start:stop] to a list, and its number to `ids` where there is one; 0 and an error where that fails. */
static int
take_piece(const char *text, Py_ssize_t start, Py_ssize_t stop, PyObject *list, PyObject *table, PyObject *strings,
           int32_t *id)
{
    PyObject *piece = PyUnicode_DecodeASCII(text + start, stop - start, NULL);
    int good = piece != NULL;
    if (good && id != NULL)
        good = (*id = number_of(piece, table, strings)) >= 0;
    if (good && list != NULL)
        good = PyList_Append(list, piece) == 0;
    Py_XDECREF(piece);
    return good;
}

/* A text of ASCII as the numbers of its words, int32 [words], and the tuple of the gaps around them [words + 1]; None for
   other texts. */
static PyObject *
words_of(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *given, *table, *strings, *gaps = NULL, *tuple = NULL, *numbers = NULL, *answer = NULL;
    Py_ssize_t size, at = 0, start = 0, count = 0;
    int32_t *ids = NULL;
    if (!PyArg_ParseTuple(args, "UO!O!:words_of", &given, &PyDict_Type, &table, &PyList_Type, &strings))
        return NULL;
    const char *text = PyUnicode_AsUTF8AndSize(given, &size);
    if (text == NULL || size != PyUnicode_GetLength(given)) {
        PyErr_Clear();
        Py_INCREF(Py_None);
        return Py_None;
    }
    if (!(gaps = PyList_New(0)) || !(ids = PyMem_Malloc(((size_t)size / 2 + 1) * sizeof(int32_t)))) {
        PyErr_NoMemory();
        goto done;
    }
    for (;;) {
        while (at < size && !is_alphanumeric(text[at]))
            at++;
        if (!take_piece(text, start, at, gaps, NULL, NULL, NULL))
            goto done;
        if (at == size)
            break;
        start = end_of_word(text, at, size);
        if (!take_piece(text, at, start, NULL, table, strings, &ids[count++]))
            goto done;
        at = start;
    }
    numbers = PyByteArray_FromStringAndSize((const char *)(void *)ids, count * (Py_ssize_t)sizeof(int32_t));
    if (numbers != NULL && (tuple = PyList_AsTuple(gaps)))
        answer = PyTuple_Pack(2, numbers, tuple);
done:
    PyMem_Free(ids);
    Py_XDECREF(gaps);
    Py_XDECREF(tuple);
    Py_XDECREF(numbers);
    return answer;
}

/* The units of a text whose words and gaps are units by themselves, int32 [2 * words + 2]: an empty one, then gap, word,
   gap, ..., gap. `known` gives the unit of a gap; None where one is below 0. */
static PyObject *
units_of(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *given, *gaps, *known, *answer = NULL;
    Array ids;
    memset(&ids, 0, sizeof(ids));
    if (!PyArg_ParseTuple(args, "OO!O!:units_of", &given, &PyTuple_Type, &gaps, &PyDict_Type, &known))
        return NULL;
    if (!hold(&ids, given, 4, 1))
        goto done;
    if (PyTuple_Size(gaps) != ids.size + 1) {
        PyErr_SetString(PyExc_ValueError, "there is one gap more than words");
        goto done;
    }
    if (!(answer = PyByteArray_FromStringAndSize(NULL, (2 * ids.size + 2) * (Py_ssize_t)sizeof(int32_t))))
        goto done;
    for (Py_ssize_t at = 0; at <= ids.size; at++) {
        PyObject *number = PyObject_GetItem(known, PyTuple_GetItem(gaps, at));
        long unit = number == NULL ? -1 : PyLong_AsLong(number);
        Py_XDECREF(number);
        if (PyErr_Occurred() || unit < 0 || unit > INT32_MAX) {
            Py_DECREF(answer);
            answer = NULL;
            if (!PyErr_Occurred()) {
                Py_INCREF(Py_None);
                answer = Py_None;
            }
            goto done;
        }
        int32_t *units = (int32_t *)(void *)PyByteArray_AsString(answer);
        if (at == 0)
            units[0] = 0;
        units[2 * at + 1] = (int32_t)unit;
        if (at < ids.size)
            units[2 * at + 2] = ((const int32_t *)ids.view.buf)[at];
    }
done:
    release(&ids, 1);
    return answer;
}

/* ------------------------------------------------------------------ module */

static PyMethodDef methods[] = {
    {"rows", rows, METH_VARARGS, "Token rows of the candidates of a round: lengths, order, ids, keys; None: not here."},
    {"padded", padded, METH_VARARGS, "Some rows of a round as one matrix, padded on the right, and its mask."},
    {"piece_table", piece_table, METH_VARARGS, "A WordPiece vocabulary as `split_words` reads it."},
    {"split_words", split_words, METH_VARARGS, "Sub-words of plain words: how many each has (-1: not plain), ids."},
    {"edits_of", edits_of, METH_VARARGS, "Position, span and word of every edit of one candidate."},
    {"replacing", replacing, METH_VARARGS, "Edits that put each of some words at a position, one candidate each."},
    {"positions", positions, METH_VARARGS, "Positions of words that may be edited and are not frozen."},
    {"furthest", furthest, METH_VARARGS, "The row of scores furthest from a class, and how far it is; or None."},
    {"ranked", ranked, METH_VARARGS, "Positions in the order of how far their rows of scores are from a class; or None."},
    {"misspelt", misspelt, METH_VARARGS, "A word with two letters swapped, one replaced, left out, put in; or None."},
    {"misspellings", misspellings, METH_VARARGS, "The misspellings of a word of a text as edits, each once; or None."},
    {"words_of", words_of, METH_VARARGS, "Numbers of the words of a text of ASCII, and the gaps around them; or None."},
    {"units_of", units_of, METH_VARARGS, "The units of a text whose words and gaps are units by themselves; or None."},
    {NULL, NULL, 0, NULL},
};

#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST ""
#endif

/* Says from which source the file was made: with another one's functions Python must not work. */
static int
name_source(PyObject *module)
{
    return PyModule_AddStringConstant(module, "SOURCE_DIGEST", SOURCE_DIGEST);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)name_source}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", "The innermost loops of the attack engine.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
