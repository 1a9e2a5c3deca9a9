"""Bugs planted by hand, of the kinds that people make: (name, what stands there, what is put there). tools/gpu_mutants.py."""

BUGS = {}

BUGS["small"] = [
    ("the wait for a copy is missing", "    ptx::cp_async_wait<1>();\n", ""),
    ("the wait for a copy is one group too weak", "cp_async_wait<1>", "cp_async_wait<2>"),
    ("no barrier after the copy has landed", "    __syncthreads();  // tile j has landed, for everyone\n", ""),
    ("no barrier before the stage is filled again", "    __syncthreads();  // everyone has read tile j", "    // everyone has read tile j"),
    ("no barrier where there is no tile", "  if (tiles == 0) __syncthreads();", "  "),
    ("no __syncwarp between writing and reading O", "  __syncwarp();\n", ""),
    ("copies are not committed", "    ptx::cp_async_commit();\n    ptx::cp_async_wait<1>();", "    ptx::cp_async_wait<1>();"),
    ("LSE is written for rows that are not there", "if (t == 0 && row < p.n_q)", "if (t == 0)"),
    ("O is written for rows that are not there", "    if (row0 + r < p.n_q)\n", "    if (true)\n"),
    ("one row too many is read", "const bool valid = row < n;", "const bool valid = row <= n;"),
    ("a copy beyond the last stage", "s.v[stage ^ 1]", "s.v[stage + 1]"),
    ("a store beyond shared memory", "*reinterpret_cast<u32*>(s.q + at<D>(r, n)", "*reinterpret_cast<u32*>(s.q + at<D>(r + 300, n)"),
    ("another swizzle in one ldmatrix", "at<D>(i * 16 + (lane & 15), n * 2 + lane / 16)",
     "at<D>(i * 16 + (lane & 15), 0) + (n * 2 + lane / 16) * 8"),
    ("a shuffle by half of the lanes", "      top = ptx::max(top, ptx::shfl_xor(top, 2));",
     "      if (t < 2) top = ptx::max(top, ptx::shfl_xor(top, 2));"),
    ("Q is never loaded", "  load_tile<D>(s.q, q, row0, p.n_q, token_stride);\n", ""),
    ("Q is loaded after its group", "  load_tile<D>(s.q, q, row0, p.n_q, token_stride);\n  load_tile<D>(s.k[0], k, 0, p.n_k, token_stride);\n  load_tile<D>(s.v[0], v, 0, p.n_k, token_stride);\n  ptx::cp_async_commit();\n",
     "  load_tile<D>(s.k[0], k, 0, p.n_k, token_stride);\n  load_tile<D>(s.v[0], v, 0, p.n_k, token_stride);\n  ptx::cp_async_commit();\n  load_tile<D>(s.q, q, row0, p.n_q, token_stride);\n"),
    ("the last key tile is not masked", "Causal ? row + shift", "Causal ? row + shift + 1"),
    ("zero-fill is forgotten", "c * 8, valid ? 16 : 0);", "c * 8, 16);"),
    ("K and V share a stage", "load_tile<D>(s.v[stage ^ 1], v, (j + 1) * 64", "load_tile<D>(s.k[stage ^ 1], v, (j + 1) * 64"),
    ("ldmatrix of the wrong half", "i * 2 + lane / 16));", "i * 2 + (lane / 16 ^ 1)));"),
    ("the values are not transposed", "ptx::ldmatrix_x4_trans(b, s.v", "ptx::ldmatrix_x4(b, s.v"),
    ("the sum is not reduced over the quad", "    l[h] += ptx::shfl_xor(l[h], 2);\n", ""),
    ("the old sum is not rescaled", "l[h] = l[h] * shrink + sum;", "l[h] = l[h] + sum;"),
    ("16-byte stores at a place that is no multiple", "ptx::store16(p.o + (row0 + r)", "ptx::store16(p.o + 4 + (row0 + r)"),
    ("two blocks write the same rows", "(int)blockIdx.x % query_tiles * 64, head", "(int)blockIdx.x % query_tiles * 60, head"),
]

BUGS["forward"] = []
