package orders;

import org.springframework.context.ApplicationContext;
import org.springframework.web.bind.annotation.ResponseBody;
import org.springframework.web.context.request.WebRequest;
import org.springframework.web.servlet.mvc.method.RequestMappingInfo;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerMapping;

/** The handler of one template in Spring. */
public final class TemplateHandler {
    private final Sightings sightings;
    private final long number; // from 1 on

    private TemplateHandler(Sightings sightings, long number) {
        this.sightings = sightings;
        this.number = number;
    }

    @ResponseBody
    public String handle(WebRequest r) {
        sightings.add(r.getHeader("x-case"), false, number, null, "template by Spring");
        return "done";
    }

    /** Maps each template to a handler. */
    static void register(ApplicationContext context) {
        RequestMappingHandlerMapping mapping = context.getBean("requestMappingHandlerMapping", RequestMappingHandlerMapping.class);
        Sightings sightings = context.getBean(Sightings.class);
        try {
            for (int i = 0; i < Templates.ALL.size(); i++) {
                RequestMappingInfo info = RequestMappingInfo.paths(Templates.ALL.get(i)).options(mapping.getBuilderConfiguration()).build();
                mapping.registerMapping(info, new TemplateHandler(sightings, i + 1), TemplateHandler.class.getMethod("handle", WebRequest.class));
            }
        } catch (NoSuchMethodException e) {
            throw new IllegalStateException(e);
        }
    }
}
