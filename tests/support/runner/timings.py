"""How long each test took when it last passed: build/test-times.tsv, a line a test: name, seconds,
processor seconds."""


class Times:
    def __init__(self, path):
        self.path = path
        self.known = {}
        self.new = {}
        if path.exists():
            for line in path.read_text().splitlines()[1:]:
                name, seconds, computed = line.split("\t")
                self.known[name] = (float(seconds), float(computed))

    def add(self, test, seconds, computed):
        self.new[test.name] = (seconds, computed)

    def seconds(self, test):
        """About how long it will take."""
        return self.known[test.name][0] if test.name in self.known else test.seconds

    def load(self, test):
        """About how many cores it will keep busy."""
        seconds, computed = self.known.get(test.name, (0, 0))
        return test.load if seconds < 1 else max(0.1, computed / seconds)

    def slowest(self, count):
        """[(name, seconds, processor seconds)] of this run."""
        rows = [(name, *times) for name, times in self.new.items()]
        return sorted(rows, key=lambda row: -row[1])[:count]

    def save(self):
        if not self.new:
            return
        rows = {**self.known, **self.new}
        lines = ["test\tseconds\tprocessor seconds"]
        lines += [f"{n}\t{rows[n][0]:.2f}\t{rows[n][1]:.2f}" for n in sorted(rows)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".tmp")
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(self.path)
