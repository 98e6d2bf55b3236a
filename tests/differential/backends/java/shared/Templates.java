package orders;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** The templates that the test has written beside the sightings, one a line. */
final class Templates {
    static final List<String> ALL = read();

    private static List<String> read() {
        try {
            Path file = Path.of(System.getProperty("sightings") + ".templates");
            return Files.exists(file) ? Files.readAllLines(file, StandardCharsets.UTF_8) : List.of();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
