"""Histograms of relative differences as SVG, without any library: most differences are zero, so the classes are powers of ten."""
BOUNDS = (0, 1e-5, 1e-4, 1e-3, 1e-2, 5e-2)
LABELS = ("exact", "≤ 0.001 %", "≤ 0.01 %", "≤ 0.1 %", "≤ 1 %", "≤ 5 %", "> 5 %")
COLOURS = ("#3b7dd8", "#2a9d6f", "#d98324")  # requested, allocated, reserved: told apart in grey, too


def counts(differences):
    found = [0] * len(LABELS)
    for d in differences:
        found[next((i for i, b in enumerate(BOUNDS) if abs(d) <= b), len(BOUNDS))] += 1
    return found


def svg(title, series):
    """series: [(name, [relative difference])]; grey text reads on light and on dark paper."""
    width, height, left, top, floor = 760, 300, 20, 54, 250
    group = (width - 2 * left) / len(LABELS)
    bar = group * 0.8 / len(series)
    table = [counts(d) for _, d in series]
    most = max(max(row) for row in table) or 1
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="#777" role="img">',
           f"<title>{title}</title>", f'<text x="{left}" y="18" font-size="14" font-weight="bold">{title}</text>']
    for i, (name, _) in enumerate(series):
        out.append(f'<rect x="{left + i * 130}" y="28" width="10" height="10" fill="{COLOURS[i]}"/><text x="{left + 15 + i * 130}" y="37">{name}</text>')
    for at, label in enumerate(LABELS):
        x = left + at * group
        out.append(f'<text x="{x + group / 2:.1f}" y="{floor + 18}" text-anchor="middle">{label}</text>')
        for i, row in enumerate(table):
            high = row[at] / most * (floor - top - 14)
            bx = x + group * 0.1 + i * bar
            if row[at]:
                out.append(f'<rect x="{bx:.1f}" y="{floor - high:.1f}" width="{bar - 2:.1f}" height="{max(high, 1):.1f}" fill="{COLOURS[i]}"/>')
                out.append(f'<text x="{bx + bar / 2 - 1:.1f}" y="{floor - high - 4:.1f}" text-anchor="middle" font-size="10">{row[at]}</text>')
    out.append(f'<line x1="{left}" y1="{floor}" x2="{width - left}" y2="{floor}" stroke="#777"/>')
    out.append(f'<text x="{left}" y="{height - 10}">relative difference of the peak of a run, in the steady step; bars are numbers of runs</text></svg>')
    return "\n".join(out) + "\n"
