package orders;

import java.io.IOException;
import org.springframework.boot.web.servlet.context.ServletWebServerInitializedEvent;
import org.springframework.context.ApplicationListener;

/** Says where the application listens. */
final class Ready implements ApplicationListener<ServletWebServerInitializedEvent> {
    /** What both applications are started with. */
    static final String[] SETTINGS = {
        "--server.port=0", "--server.address=127.0.0.1", "--server.tomcat.threads.max=32",
        "--server.tomcat.relaxed-path-chars=\",<,>,[,\\,],^,`,{,|,}",
        "--server.tomcat.relaxed-query-chars=\",<,>,[,\\,],^,`,{,|,}",
        "--server.forward-headers-strategy=framework",
        "--spring.mvc.hiddenmethod.filter.enabled=true", "--spring.main.lazy-initialization=true",
        "--spring.main.banner-mode=off", "--spring.jmx.enabled=false", "--logging.level.root=OFF",
    };

    @Override
    public void onApplicationEvent(ServletWebServerInitializedEvent event) {
        TemplateHandler.register(event.getApplicationContext());
        System.out.println("listening on 127.0.0.1:" + event.getWebServer().getPort());
    }

    static Sightings sightings(String backend) {
        try {
            return new Sightings(backend);
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
